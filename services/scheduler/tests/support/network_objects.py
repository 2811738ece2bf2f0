"""Networks for tests: HyperNodes, and gangs with topology constraints."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from services.scheduler.tests.support import default_sessions, sessions
from stromboli.shared.api import batch, core, meta, scheduling, topology
from stromboli.testkit import builders

PLUGIN = sessions.plugin("network-topology-aware")
TIER: sessions.Tier = [
    sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")
] + [PLUGIN]


def member(name: str, type_: str = "Node") -> topology.Member:
    exact = topology.ExactMatch(name=name)
    return topology.Member(type=type_, selector=topology.MemberSelector(exact_match=exact))


def selected(**selector: Any) -> topology.Member:
    """Nodes by ``regex_match`` or ``label_match``."""
    return topology.Member(type="Node", selector=topology.MemberSelector(**selector))


def hyper_node(
    name: str, tier: int, members: Sequence[topology.Member], tier_name: str = ""
) -> topology.HyperNode:
    return topology.HyperNode(
        metadata=builders.make_meta("hypernode", name),
        spec=topology.HyperNodeSpec(tier=tier, tier_name=tier_name, members=tuple(members)),
    )


def rack(name: str, *nodes: str, tier: int = 1, tier_name: str = "") -> topology.HyperNode:
    return hyper_node(name, tier, [member(node) for node in nodes], tier_name)


def spine(name: str, *racks: str, tier: int = 2, tier_name: str = "") -> topology.HyperNode:
    return hyper_node(name, tier, [member(each, "HyperNode") for each in racks], tier_name)


def two_racks(cpu: int = 2) -> list[meta.Object]:
    """Racks r1 (n1, n2) and r2 (n3, n4) below the spine s."""
    return [
        *(builders.make_node(f"n{at}", cpu=cpu) for at in (1, 2, 3, 4)),
        rack("r1", "n1", "n2"),
        rack("r2", "n3", "n4"),
        spine("s", "r1", "r2"),
    ]


def hard(tier: int | None = None, name: str = "") -> batch.NetworkTopology:
    return batch.NetworkTopology(highest_tier_allowed=tier, highest_tier_name=name)


SOFT = batch.NetworkTopology(mode="soft")


def asking(
    objects: Sequence[meta.Object],
    requirement: batch.NetworkTopology | None,
    *policies: scheduling.SubGroupPolicy,
) -> list[meta.Object]:
    """The same objects; their PodGroup has a topology constraint."""
    return [
        msgspec.structs.replace(
            each,
            spec=msgspec.structs.replace(
                each.spec, network_topology=requirement, sub_group_policy=policies
            ),
        )
        if isinstance(each, scheduling.PodGroup)
        else each
        for each in objects
    ]


def gang(
    name: str,
    pods: int,
    requirement: batch.NetworkTopology | None,
    *policies: scheduling.SubGroupPolicy,
    **more: Any,
) -> list[meta.Object]:
    return asking(default_sessions.gang(name, pods, **more), requirement, *policies)


def running(name: str, group: str, node: str, **pod: Any) -> core.Pod:
    return builders.make_pod(name, group, node=node, phase="Running", **pod)


def nodes_of(binds: Mapping[str, str]) -> list[str]:
    return sorted(binds.values())
