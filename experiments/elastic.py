"""Elastic jobs: eight equal tasks that may run with two of them, or only all together."""

from collections.abc import Mapping

import msgspec
import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import workload

TEXT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""
JOBS = 80


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """The same work with a minimum of 8, 4 and 2 tasks."""
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.exponential(150, JOBS))
    sizes = random.lognormal(np.log(600), 0.6, JOBS)
    rigid = [
        support.job(f"sweep-{at}", float(arrivals[at]), float(sizes[at]), tasks=8, cpu=2)
        for at in range(JOBS)
    ]
    cluster = support.nodes(5, cpu=20)
    return {
        f"minimum {least}": support.scenario(
            cluster, [msgspec.structs.replace(each, min_available=least) for each in rigid], TEXT
        )
        for least in (8, 4, 2)
    }


EXPERIMENT = support.Experiment(
    "elastic",
    scenarios,
    {
        "mean JCT, s": lambda ran: ran.summary.jct_mean_s,
        "mean wait, s": lambda ran: ran.summary.wait_mean_s,
        "CPU utilisation": lambda ran: ran.summary.cpu_utilisation,
        "makespan, s": lambda ran: ran.summary.makespan_s,
    },
)
