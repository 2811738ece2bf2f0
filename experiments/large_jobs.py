"""A gang that needs half of the cluster, while small jobs keep it full: the plugin sla."""

from collections.abc import Mapping

import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import workload

TEXT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}{sla}]
- plugins: [{{name: predicates}}, {{name: nodeorder}}, {{name: binpack}}]
"""
JOBS = 400


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """Without sla, and with waiting times of 30 and 10 minutes."""
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
    sla = ", {{name: sla, arguments: {{sla-waiting-time: {0}}}}}"
    return {
        "no sla": support.scenario(cluster, jobs, TEXT.format(sla="")),
        **{
            f"sla of {time}": support.scenario(cluster, jobs, TEXT.format(sla=sla.format(time)))
            for time in ("30m", "10m")
        },
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
