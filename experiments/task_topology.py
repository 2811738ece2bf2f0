"""Task topology: three training jobs of two parameter servers and four workers on small nodes.

Each worker exchanges gradients with both parameter servers. The part of these pairs that are on
different nodes makes a job slower: a job whose pairs are all apart takes 1.5 times as long. The
factor is an assumption; a network is not simulated.
"""

import itertools
from collections.abc import Mapping

import msgspec
import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import hardware, workload

TEXT = """
actions: "enqueue, allocate"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{name: predicates}}, {{name: nodeorder}}{more}]
"""
VARIANTS = {
    "nodeorder": "",
    "binpack": ", {name: binpack, arguments: {binpack.weight: 10}}",
    "task-topology": ", {name: task-topology, arguments: {task-topology.weight: 10}}",
    "task-topology and binpack": ", {name: task-topology, arguments: {task-topology.weight: 10}}"
    ", {name: binpack}",
}
ROLES = ("ps", "ps", "worker", "worker", "worker", "worker")
ANNOTATIONS = {
    "volcano.sh/task-topology-affinity": "ps,worker",
    "volcano.sh/task-topology-anti-affinity": "ps",
}
NODES, CORES = 6, 8
ALL_APART = 1.5


class Network(hardware.Hardware):
    """A job is slower the more of its pairs of parameter server and worker are on different
    nodes."""

    def slowdown(self, nodes: Mapping[str, str]) -> float:
        """From 1 (no pair is apart) to ``ALL_APART`` (all are)."""
        servers = [node for pod, node in nodes.items() if "-ps-" in pod]
        workers = [node for pod, node in nodes.items() if "-worker-" in pod]
        pairs = list(itertools.product(servers, workers))
        apart = sum(server != worker for server, worker in pairs)
        return 1 + (ALL_APART - 1) * apart / len(pairs)


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """The same jobs, which arrive together, with each plugin."""
    random = np.random.default_rng(seed)
    jobs = [
        msgspec.structs.replace(
            support.job(f"training-{at}", 0, run_s, tasks=len(ROLES), cpu=2, is_synchronous=True),
            roles=ROLES,
            annotations=ANNOTATIONS,
        )
        for at, run_s in enumerate(random.lognormal(np.log(600), 0.3, 3).tolist())
    ]
    cluster = support.nodes(NODES, cpu=CORES)
    return {
        name: support.scenario(cluster, jobs, TEXT.format(more=more), model=Network())
        for name, more in VARIANTS.items()
    }


def _part_apart(ran: support.Ran) -> float:
    return (support.mean(ran.slowdowns) - 1) / (ALL_APART - 1)


EXPERIMENT = support.Experiment(
    "task_topology",
    scenarios,
    {
        "mean JCT, s": lambda ran: support.mean(ran.jcts_s),
        "pairs on different nodes": _part_apart,
        "makespan, s": lambda ran: ran.summary.makespan_s,
    },
)
