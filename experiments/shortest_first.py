"""Shortest remaining service first: jobs of very different sizes on a cluster with little to spare.

Users state the run times of their jobs: exactly, with errors, or not at all.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from experiments import support
from stromboli.embedded.simulation.core import workload

TEXT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{{name: priority}}, {order}{{name: gang}}]
- plugins: [{{name: predicates}}, {{name: nodeorder}}, {{name: binpack}}]
"""
SHORTEST = "{name: shortest-remaining-service, arguments: {waits-at-most: %s}}, "
RESERVATION = "{name: reservation}, "
NEVER, LIMIT = "10000h", "4h"
JOBS = 250
SIZES, PARTS = (1, 2, 4, 8), (0.5, 0.2, 0.15, 0.15)
ERROR = 1.0
"""Standard deviation of the logarithm of stated / real run time: half are wrong by a factor of 2
or more."""


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """By arrival, and by remaining service with run times of different quality."""
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.exponential(60, JOBS))
    sizes = random.choice(SIZES, JOBS, p=PARTS)
    run_s = random.lognormal(np.log(900), 1.2, JOBS)
    stated_s = run_s * random.lognormal(0, ERROR, JOBS)
    jobs = [
        support.job(f"job-{at}", float(arrivals[at]), float(run_s[at]), gpus=int(sizes[at]))
        for at in range(JOBS)
    ]
    cluster = support.nodes(6, gpus=8)

    def scenario(given: Sequence[workload.Job], order: str) -> workload.Scenario:
        return support.scenario(cluster, list(given), TEXT.format(order=order))

    exact = _stating(jobs, run_s)
    return {
        "by arrival": scenario(jobs, ""),
        "run times known": scenario(exact, SHORTEST % NEVER),
        "known, limit of 4 h": scenario(exact, SHORTEST % LIMIT),
        "known, limit and reservation": scenario(exact, SHORTEST % LIMIT + RESERVATION),
        "run times with errors": scenario(_stating(jobs, stated_s), SHORTEST % NEVER),
        "run times unknown": scenario(jobs, SHORTEST % NEVER),
    }


def _stating(jobs: Sequence[workload.Job], run_s: npt.NDArray[np.float64]) -> list[workload.Job]:
    return [
        msgspec.structs.replace(job, estimate_us=max(1, round(seconds * support.SECOND)))
        for job, seconds in zip(jobs, run_s.tolist(), strict=True)
    ]


EXPERIMENT = support.Experiment(
    "shortest_first",
    scenarios,
    {
        "mean JCT, s": lambda ran: ran.summary.jct_mean_s,
        "mean wait, s": lambda ran: ran.summary.wait_mean_s,
        "longest wait, s": lambda ran: max(ran.waits_s.values(), default=0.0),
        "GPU utilisation": lambda ran: ran.summary.gpu_utilisation,
    },
)
