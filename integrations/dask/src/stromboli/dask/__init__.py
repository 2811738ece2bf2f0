"""Dask clusters whose workers are Stromboli jobs."""

from stromboli.dask.cluster import StromCluster
from stromboli.dask.worker_job import WorkerOptions

__all__ = ["StromCluster", "WorkerOptions"]
