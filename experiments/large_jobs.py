"""A gang that needs 40 of 100 cores among small jobs, with and without the plugin reservation."""

from collections.abc import Mapping

import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import workload

TEXT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}{more}]
- plugins: [{{name: predicates}}, {{name: nodeorder}}, {{name: binpack}}]
"""
JOBS = 150


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """Without the plugin, and with it."""
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.exponential(28, JOBS))
    jobs = [
        support.job(
            f"small-{at}", float(arrivals[at]), float(random.lognormal(np.log(600), 0.8)), cpu=4
        )
        for at in range(JOBS)
    ]
    jobs.append(support.job("large", 2000, 1800, tasks=5, cpu=8))
    cluster = support.nodes(10, cpu=10)
    reservation = ", {name: reservation, arguments: {hold-without-start: true}}"
    return {
        "without": support.scenario(cluster, jobs, TEXT.format(more="")),
        "reservation": support.scenario(cluster, jobs, TEXT.format(more=reservation)),
    }


EXPERIMENT = support.Experiment(
    "large_jobs",
    scenarios,
    {
        "wait of the large job, s": lambda ran: ran.waits_s.get("large", float("nan")),
        "mean wait of small jobs, s": lambda ran: support.mean(ran.waits_s, "small"),
        "CPU utilisation": lambda ran: ran.summary.cpu_utilisation,
    },
)
