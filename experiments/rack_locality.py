"""Rack locality: gangs that are slower if their pods are in several racks.

A HyperNode for each rack, and one for the switch above them. A gang whose pods are in more than one
rack takes 1.4 times as long. The factor is an assumption; a network is not simulated.
"""

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from experiments import support
from stromboli.embedded.simulation.core import hardware, workload
from stromboli.shared.api import batch, meta, topology

TEXT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{name: predicates}}, {{name: nodeorder}}{more}]
"""
AWARE = ", {name: network-topology-aware, arguments: {weight: 10}}"
RACKS, NODES_PER_RACK, GPUS = 4, 8, 8
JOBS = 100
LOAD = 0.8
"""The GPU time of all jobs, at full speed, as a part of what the cluster has while they arrive."""
SEVERAL_RACKS = 1.4


def rack_of(node: str) -> int:
    """The rack of a node by its number."""
    return int(node.rpartition("-")[2]) // NODES_PER_RACK


class Racks(hardware.Hardware):
    """Jobs in more than one rack are slower."""

    def objects(self) -> Iterable[meta.Object]:
        """A HyperNode for each rack, and one for all."""
        for rack in range(RACKS):
            first = rack * NODES_PER_RACK
            names = [f"node-{number}" for number in range(first, first + NODES_PER_RACK)]
            yield _hyper_node(f"rack-{rack}", 1, "Node", names)
        yield _hyper_node("spine", 2, "HyperNode", [f"rack-{rack}" for rack in range(RACKS)])

    def slowdown(self, nodes: Mapping[str, str]) -> float:
        """1 if all pods are in one rack, else ``SEVERAL_RACKS``."""
        return SEVERAL_RACKS if len({rack_of(node) for node in nodes.values()}) > 1 else 1.0


def _hyper_node(name: str, tier: int, kind: str, members: list[str]) -> topology.HyperNode:
    selectors = (
        topology.MemberSelector(exact_match=topology.ExactMatch(name=member)) for member in members
    )
    made = tuple(topology.Member(type=kind, selector=each) for each in selectors)
    spec = topology.HyperNodeSpec(tier=tier, members=made)
    return topology.HyperNode(metadata=meta.ObjectMeta(name=name, uid=f"hn-{name}"), spec=spec)


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """The same jobs with each constraint."""
    random = np.random.default_rng(seed)
    run_s = random.lognormal(np.log(1800), 0.8, JOBS)
    tasks = random.choice([1, 2, 4, 8], JOBS, p=[0.4, 0.25, 0.25, 0.1])
    gpus = random.choice([4, 8], JOBS)
    span_s = float((run_s * tasks * gpus).sum()) / (RACKS * NODES_PER_RACK * GPUS * LOAD)
    arrivals = np.sort(random.uniform(0, span_s, JOBS))
    jobs = [
        support.job(
            f"job-{at}",
            float(arrivals[at]),
            float(run_s[at]),
            tasks=int(tasks[at]),
            gpus=int(gpus[at]),
            is_synchronous=True,
        )
        for at in range(JOBS)
    ]
    soft = batch.NetworkTopology(mode="soft", highest_tier_allowed=1)
    hard = batch.NetworkTopology(mode="hard", highest_tier_allowed=1)
    return {
        "nodeorder": _scenario(jobs, ""),
        "binpack": _scenario(jobs, ", {name: binpack}"),
        "soft: one rack": _scenario(jobs, AWARE, soft),
        "hard: one rack": _scenario(jobs, AWARE, hard),
    }


def _scenario(
    jobs: list[workload.Job], more: str, wanted: batch.NetworkTopology | None = None
) -> workload.Scenario:
    found = [
        msgspec.structs.replace(each, network_topology=wanted) if each.tasks > 1 else each
        for each in jobs
    ]
    cluster = support.nodes(RACKS * NODES_PER_RACK, gpus=GPUS)
    return support.scenario(cluster, found, TEXT.format(more=more), model=Racks())


EXPERIMENT = support.Experiment(
    "rack_locality",
    scenarios,
    {
        "mean JCT, s": lambda ran: support.mean(ran.jcts_s),
        "jobs in one rack": support.part_at_full_speed,
        "mean wait, s": lambda ran: support.mean(ran.waits_s),
        "p95 of the JCT, s": lambda ran: ran.summary.jct_p95_s,
        "GPU utilisation": lambda ran: ran.summary.gpu_utilisation,
    },
)
