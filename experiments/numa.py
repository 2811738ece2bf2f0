"""NUMA alignment: pods of whole cores on nodes of two NUMA nodes, whose kubelets assign the cores.

The kubelets have the CPU manager policy ``static``. Under the topology manager's policy
``best-effort`` a pod starts even if its cores are on both NUMA nodes, and then takes 1.3 times as
long. The factor is an assumption; memory is not simulated.
"""

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import workload
from stromboli.scheduler.core.numa import alignment, cpus, hardware
from stromboli.shared.api import meta, numa
from stromboli.shared.formats import cpu_lists

TEXT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{name: predicates}}, {{name: nodeorder}}{more}]
"""
AWARE = ", {name: numa-aware, arguments: {weight: 10}}"
NODES, NUMA_NODES, CORES = 8, 2, 16
"""Cores of one NUMA node."""
JOBS = 120
LOAD = 0.8
"""The core time of all jobs, at full speed, as a part of what the nodes have while they arrive."""
ACROSS = 1.3


class Kubelets:
    """The cores of each node, as its kubelet assigns them. A pod that has cores of more NUMA nodes
    than it needs is slower. ``policy``: that of the topology manager."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._places = {
            number: numa.CpuPlace(numa=number // CORES, socket=number // CORES, core=number)
            for number in range(NUMA_NODES * CORES)
        }
        self._kind = hardware.Hardware(cpus.Machine(self._places))
        names = [f"node-{number}" for number in range(NODES)]
        self._free = dict.fromkeys(names, self._kind.everything)
        self._held: dict[str, tuple[str, alignment.PodShares]] = {}

    def objects(self) -> Iterable[meta.Object]:
        """A Numatopology for each node."""
        return [self._report(name) for name in self._free]

    def place(self, pod: str, cores: int, node: str) -> Iterable[meta.Object]:
        """Assign cores to the pod, as the kubelet does."""
        request = alignment.PodRequest((alignment.ContainerRequest(cores),))
        share = alignment.place_pod(self._kind, self._free[node], request, self._policy)
        if share is None:
            raise ValueError(f"the kubelet of {node} rejects {pod}")
        for each in share.of_containers:
            self._free[node] = self._free[node].less(each, self._kind)
        self._held[pod] = node, share
        return [self._report(node)]

    def release(self, pod: str) -> Iterable[meta.Object]:
        """Free the pod's cores."""
        node, share = self._held.pop(pod)
        for each in share.of_containers:
            self._free[node] = self._free[node].plus(each, self._kind)
        return [self._report(node)]

    def slowdown(self, nodes: Mapping[str, str]) -> float:
        """1 if no pod has cores of more NUMA nodes than it needs."""
        return ACROSS if any(map(self._is_across, nodes)) else 1.0

    def _is_across(self, pod: str) -> bool:
        own = self._held[pod][1].all_cpus
        return self._kind.machine.cells_of(own) > -(-len(own) // CORES)

    def _report(self, node: str) -> numa.Numatopology:
        free = cpu_lists.written(self._free[node].cpus)
        policies = {"CPUManagerPolicy": "static", "TopologyManagerPolicy": self._policy}
        return numa.Numatopology(
            metadata=meta.ObjectMeta(name=node, uid=f"numa-{node}"),
            spec=numa.NumatopologySpec(
                policies=policies,
                numares={"cpu": numa.NumaResource(allocatable=free, capacity=NUMA_NODES * CORES)},
                cpu_detail={str(number): place for number, place in self._places.items()},
            ),
        )


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """The same jobs with each policy."""
    random = np.random.default_rng(seed)
    run_s = random.lognormal(np.log(900), 0.8, JOBS)
    cores = random.choice([2, 4, 6, 10, 12], JOBS)
    span_s = float((run_s * cores).sum()) / (NODES * NUMA_NODES * CORES * LOAD)
    arrivals = np.sort(random.uniform(0, span_s, JOBS))
    jobs = [
        support.job(
            f"job-{at}", float(arrivals[at]), float(run_s[at]), cpu=float(cores[at]), memory_gib=1
        )
        for at in range(JOBS)
    ]
    return {
        "nodeorder": _scenario(jobs, "", alignment.BEST_EFFORT),
        "binpack": _scenario(jobs, ", {name: binpack}", alignment.BEST_EFFORT),
        "`numa-aware`, best-effort": _scenario(
            jobs, AWARE, alignment.BEST_EFFORT, alignment.BEST_EFFORT
        ),
        "`numa-aware`, single-numa-node": _scenario(
            jobs, AWARE, alignment.SINGLE, alignment.SINGLE
        ),
    }


def _scenario(
    jobs: list[workload.Job], more: str, policy: str, required: str = ""
) -> workload.Scenario:
    found = [msgspec.structs.replace(each, topology_policy=required) for each in jobs]
    cluster = support.nodes(NODES, cpu=NUMA_NODES * CORES, memory_gib=256)
    return support.scenario(cluster, found, TEXT.format(more=more), model=Kubelets(policy))


EXPERIMENT = support.Experiment(
    "numa",
    scenarios,
    {
        "mean JCT, s": lambda ran: support.mean(ran.jcts_s),
        "aligned pods": support.part_at_full_speed,
        "mean wait, s": lambda ran: support.mean(ran.waits_s),
        "p95 of the JCT, s": lambda ran: ran.summary.jct_p95_s,
        "CPU utilisation": lambda ran: ran.summary.cpu_utilisation,
    },
)
