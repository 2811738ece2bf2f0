"""A gang that needs 40 of 100 cores among small jobs of the same size of pods, with and without the
plugin sla."""

from collections.abc import Mapping

import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import workload

TEXT = """
actions: "enqueue, allocate, backfill"
tiers:
{first}- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{name: predicates}}, {{name: nodeorder}}, {{name: binpack}}]
"""
JOBS = 150


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """Without the plugin, and with two waiting times."""
    random = np.random.default_rng(seed)
    jobs = support.small_jobs(random, JOBS, every_s=70, cpu=8)
    jobs.append(support.job("large", 4000, 1800, tasks=5, cpu=8))
    cluster = support.nodes(10, cpu=10)
    variants = {"no sla": ""} | {
        f"sla-waiting-time: {time}": (
            f"- plugins: [{{name: sla, arguments: {{sla-waiting-time: {time}}}}}]\n"
        )
        for time in ("30m", "1h")
    }
    return {
        name: support.scenario(cluster, jobs, TEXT.format(first=first))
        for name, first in variants.items()
    }


EXPERIMENT = support.Experiment("sla", scenarios, support.LARGE_AND_SMALL)
