"""Dominant resource fairness: a job that needs CPU and one that needs memory, on four nodes.

The nodes have 3920m of CPU and 6265300Ki of memory. Both jobs want more than the cluster has.
"""

from collections.abc import Mapping

import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import workload

TEXT = """
actions: "enqueue, allocate"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{order}{{name: predicates}}, {{name: nodeorder}}]
"""
CPU, MEMORY_GIB = 3.92, 6265300 / 2**20
TASKS = 40


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """By priority (the CPU job is first, as it came first) and by dominant share."""
    random = np.random.default_rng(seed)
    kinds = {"cpu": (1.0, 0.5), "memory": (0.25, 2.0)}
    jobs = [
        support.job(
            f"{kind}-{at}",
            at * 0.001 + (0 if kind == "cpu" else 0.0005),
            float(random.uniform(280, 320)),
            tasks=4,
            min_available=1,
            cpu=cpu,
            memory_gib=memory,
            priority=10 if kind == "cpu" else 5,
        )
        for kind, (cpu, memory) in kinds.items()
        for at in range(TASKS // 4)
    ]
    cluster = support.nodes(4, cpu=CPU, memory_gib=MEMORY_GIB)
    drf = "{name: drf, enablePreemptable: false}, "
    no_priority = TEXT.replace("{{name: priority}}, ", "")
    return {
        "priority": support.scenario(cluster, jobs, TEXT.format(order="")),
        "DRF": support.scenario(cluster, jobs, no_priority.format(order=drf)),
    }


EXPERIMENT = support.Experiment(
    "drf",
    scenarios,
    {
        "mean wait of memory jobs, s": lambda ran: support.mean(ran.waits_s, "memory"),
        "mean wait of CPU jobs, s": lambda ran: support.mean(ran.waits_s, "cpu"),
        "CPU utilisation": lambda ran: ran.summary.cpu_utilisation,
        "memory utilisation": lambda ran: ran.summary.memory_utilisation,
        "makespan, s": lambda ran: ran.summary.makespan_s,
    },
)
