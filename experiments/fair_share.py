"""Fair share over time: a queue fills the cluster, then another one with twice its weight comes."""

from collections.abc import Mapping

import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import workload

TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""
LATE_S = 1800.0
JOBS = 60


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """With and without the action reclaim; evicted jobs start over, or have checkpoints."""
    random = np.random.default_rng(seed)
    jobs = [
        support.job(
            f"{queue}-{at}",
            begin_s + float(random.uniform(0, 60)),
            float(random.lognormal(np.log(3600), 0.5)),
            cpu=2,
            queue=queue,
        )
        for queue, begin_s in (("early", 0.0), ("late", LATE_S))
        for at in range(JOBS)
    ]
    cluster = support.nodes(10, cpu=8)
    queues = support.queue("early", weight=1), support.queue("late", weight=2)
    found = {}
    for name, actions, keeps in (
        ("no reclaim", "enqueue, allocate, backfill", False),
        ("reclaim", "enqueue, allocate, backfill, reclaim", False),
        ("reclaim, with checkpoints", "enqueue, allocate, backfill, reclaim", True),
    ):
        text = f'actions: "{actions}"{TIERS}'
        found[name] = support.scenario(cluster, jobs, text, *queues, keeps_progress=keeps)
    return found


EXPERIMENT = support.Experiment(
    "fair_share",
    scenarios,
    {
        "distance from deserved": lambda ran: ran.summary.deserved_distance or 0.0,
        "mean wait of `late`, s": lambda ran: support.mean(ran.waits_s, "late"),
        "mean JCT of `early`, s": lambda ran: support.mean(ran.jcts_s, "early"),
        "evictions": lambda ran: ran.summary.evictions,
        "makespan, s": lambda ran: ran.summary.makespan_s,
    },
    over_time=("no reclaim", "reclaim"),
)
