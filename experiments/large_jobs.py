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
    jobs = support.small_jobs(random, JOBS, every_s=28, cpu=4)
    jobs.append(support.job("large", 2000, 1800, tasks=5, cpu=8))
    cluster = support.nodes(10, cpu=10)
    reservation = ", {name: reservation, arguments: {hold-without-start: true}}"
    return {
        "without": support.scenario(cluster, jobs, TEXT.format(more="")),
        "reservation": support.scenario(cluster, jobs, TEXT.format(more=reservation)),
    }


EXPERIMENT = support.Experiment("large_jobs", scenarios, support.LARGE_AND_SMALL)
