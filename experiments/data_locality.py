"""Data sets in node-local caches: placement with and without regard to where copies are.

A generated load: the data sets that jobs read are drawn from a Zipf distribution, as a few of them
are read by many jobs. Each node fetches at 200 MB/s into a cache that holds a few data sets.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import workload
from stromboli.shared.api import batch
from stromboli.shared.jobspec import data_sets

TEXT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang, enablePreemptable: false}}]
- plugins: [{{name: predicates}}, {{name: nodeorder}}, {{name: binpack}}{locality}]
"""
AWARE = ", {{name: data-locality, arguments: {{data-locality.origin-rate: 200M{more}}}}}"
NODES, GPUS = 32, 8
CACHE_BYTES, BYTES_PER_S = 400 * 10**9, 200 * 10**6
DATA_SETS, ZIPF = 60, 1.1
JOBS = 200
LOAD = 0.7
"""The GPU time of all jobs as a part of what the cluster has while they arrive."""


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """The same jobs under each variant."""
    random = np.random.default_rng(seed)
    sizes = np.clip(random.lognormal(np.log(60), 0.7, DATA_SETS), 5, 250) * 10**9
    popularity = 1 / np.arange(1, DATA_SETS + 1) ** ZIPF
    chosen = random.choice(DATA_SETS, JOBS, p=popularity / popularity.sum())
    run_s = random.lognormal(np.log(900), 1.0, JOBS)
    tasks = random.choice([1, 2, 4], JOBS, p=[0.7, 0.2, 0.1])
    gpus = random.choice([1, 2, 4, 8], JOBS, p=[0.4, 0.25, 0.2, 0.15])
    span_s = float((run_s * tasks * gpus).sum()) / (NODES * GPUS * LOAD)
    arrivals = np.sort(random.uniform(0, span_s, JOBS))
    jobs = []
    for at in range(JOBS):
        job = support.job(
            f"job-{at}",
            float(arrivals[at]),
            float(run_s[at]),
            tasks=int(tasks[at]),
            gpus=int(gpus[at]),
            is_synchronous=True,
        )
        number = int(chosen[at])
        read = batch.DataSet(
            name="data", uri=f"s3://bucket/{number}", size=round(float(sizes[number]))
        )
        jobs.append((job, read))
    return {
        "no awareness": _scenario(jobs, ""),
        "`data-locality`, no prefetch": _scenario(
            jobs, AWARE.format(more=", data-locality.prefetch: false")
        ),
        "`data-locality`": _scenario(jobs, AWARE.format(more="")),
        "the same, `sharing: Share`": _scenario(jobs, AWARE.format(more=""), sharing="Share"),
        "the same, `locality: Required`": _scenario(
            jobs, AWARE.format(more=""), locality="Required"
        ),
    }


def _scenario(
    jobs: Sequence[tuple[workload.Job, batch.DataSet]], locality_plugin: str, **changes: str
) -> workload.Scenario:
    (group,) = support.nodes(NODES, gpus=GPUS)
    group = msgspec.structs.replace(group, cache_bytes=CACHE_BYTES, read_bytes_per_s=BYTES_PER_S)
    with_data = [
        msgspec.structs.replace(
            job, data_sets=(data_sets.request_of(msgspec.structs.replace(read, **changes)),)
        )
        for job, read in jobs
    ]
    return support.scenario((group,), with_data, TEXT.format(locality=locality_plugin))


MEASURES: Mapping[str, support.Measure] = {
    "mean JCT, s": lambda ran: support.mean(ran.jcts_s),
    "p95, s": lambda ran: float(np.percentile(list(ran.jcts_s.values()), 95)),
    "TB fetched": lambda ran: (ran.summary.data_fetched_gb or 0) / 1000,
    "a pod waits for data, s": lambda ran: ran.summary.data_wait_mean_s or 0.0,
    "a gang waits to start, s": lambda ran: support.mean(ran.waits_s),
    "finished": lambda ran: float(ran.summary.finished),
}
EXPERIMENT = support.Experiment("data_locality", scenarios, MEASURES)
