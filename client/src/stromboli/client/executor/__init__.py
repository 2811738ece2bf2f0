"""A ``concurrent.futures.Executor`` whose workers are the pods of a job.

``JobExecutor`` has the standard interface; ``AsyncJobExecutor`` is the same for asyncio. Calls and
results travel through a directory or an object store, so that the caller needs no address that pods
can reach. Needs the extra ``stromboli-client[executor]``.
"""

from stromboli.client.executor.asynchronous import AsyncJobExecutor
from stromboli.client.executor.executor import JobExecutor
from stromboli.client.executor.worker_job import WorkerOptions

__all__ = ["AsyncJobExecutor", "JobExecutor", "WorkerOptions"]
