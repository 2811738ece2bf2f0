"""Hierarchical queues: two teams of a department that may or may not use what the other leaves."""

from collections.abc import Mapping

import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import workload
from stromboli.shared.api import scheduling

TEXT = """
actions: "enqueue, allocate, backfill, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: capacity, enableHierarchy: true}, {name: nodeorder}]
"""
JOBS = 60


def _queues(*, borrow: bool) -> list[scheduling.Queue]:
    half, quarter = {"cpu": "40"}, {"cpu": "20"}
    queues = []
    for department in ("a", "b"):
        limit = {} if borrow else {"capability": half}
        queues.append(support.queue(department, deserved=half, **limit))
        for team in (1, 2):
            limit = {} if borrow else {"capability": quarter}
            queues.append(
                support.queue(f"{department}{team}", parent=department, deserved=quarter, **limit)
            )
    return queues


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """One team works at night, all others in the morning; fixed limits against borrowing."""
    random = np.random.default_rng(seed)
    begins = {"a1": 0.0, "a2": 3600.0, "b1": 3600.0, "b2": 5400.0}
    jobs = [
        support.job(
            f"{team}-{at}",
            begin_s + float(random.uniform(0, 600)),
            float(random.lognormal(np.log(900), 0.4)),
            cpu=2,
            queue=team,
        )
        for team, begin_s in begins.items()
        for at in range(JOBS)
    ]
    cluster = support.nodes(10, cpu=8)
    return {
        name: support.scenario(cluster, jobs, TEXT, *_queues(borrow=borrow), keeps_progress=True)
        for name, borrow in (("fixed limits", False), ("borrowing and reclaim", True))
    }


EXPERIMENT = support.Experiment(
    "hierarchy",
    scenarios,
    {
        "mean JCT, s": lambda ran: ran.summary.jct_mean_s,
        "mean wait of the first team, s": lambda ran: support.mean(ran.waits_s, "a1"),
        "mean wait of the last team, s": lambda ran: support.mean(ran.waits_s, "b2"),
        "CPU utilisation": lambda ran: ran.summary.cpu_utilisation,
        "evictions": lambda ran: ran.summary.evictions,
    },
)
