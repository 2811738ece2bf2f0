"""Rules of ``strom topology``: what is free where on the network."""

from typing import Any

import msgspec

from stromboli.cli.commands import topology
from stromboli.cli.render import usage
from stromboli.shared.api import core, kinds
from stromboli.shared.api import topology as api
from stromboli.testkit import builders

GPUS = {usage.GPU: "8"}
OUTSIDE = "no HyperNode contains these nodes, so no job with a topology constraint uses them"


def member(type_: str, name: str) -> api.Member:
    exact = api.ExactMatch(name=name)
    return api.Member(type=type_, selector=api.MemberSelector(exact_match=exact))


def hyper_node(name: str, tier: int, type_: str, *members: str, called: str = "") -> api.HyperNode:
    return api.HyperNode(
        metadata=builders.make_meta("hypernode", name),
        spec=api.HyperNodeSpec(
            tier=tier, tier_name=called, members=tuple(member(type_, each) for each in members)
        ),
    )


def cluster_objects(*more: api.HyperNode) -> usage.ClusterObjects:
    """Two racks below a spine, and n4 in no HyperNode; three GPUs of n1 are in use."""
    pods: list[core.Pod] = [
        builders.make_pod("p", node="n1", cpu="2", memory="1Gi", extra={usage.GPU: "3"}),
        builders.make_pod("over", node="n2", extra={usage.GPU: "8"}, phase="Succeeded"),
        builders.make_pod("waits", extra={usage.GPU: "8"}),
    ]
    return usage.ClusterObjects(
        nodes=tuple(
            builders.make_node(f"n{at}", cpu="8", memory="16Gi", extra=GPUS) for at in (1, 2, 3, 4)
        ),
        pods=tuple(pods),
        hyper_nodes=(
            hyper_node("r1", 1, "Node", "n1", "n2", called="rack"),
            hyper_node("r2", 1, "Node", "n3", called="rack"),
            hyper_node("s", 2, "HyperNode", "r1", "r2"),
            *more,
        ),
    )


def lines(place: topology.Domain, depth: int = 0) -> list[str]:
    inside = [line for each in place.inside for line in lines(each, depth + 1)]
    return ["  " * depth + topology.line(place), *inside]


def test_each_level_shows_its_free_resources() -> None:
    """Requests of running pods are subtracted; pods that have ended or are pending use nothing."""
    root, complaints = topology.domain_tree(cluster_objects())
    assert lines(root) == [
        "cluster   tier 3   4 nodes, 3 idle   "
        "free: 30 of 32 CPU, 63Gi of 64Gi memory, 29 of 32 GPU",
        "  s   tier 2   3 nodes, 2 idle   free: 22 of 24 CPU, 47Gi of 48Gi memory, 21 of 24 GPU",
        "    r1   tier 1 rack   2 nodes, 1 idle   "
        "free: 14 of 16 CPU, 31Gi of 32Gi memory, 13 of 16 GPU",
        "    r2   tier 1 rack   1 node, 1 idle   free: 8 of 8 CPU, 16Gi of 16Gi memory, 8 of 8 GPU",
    ]
    assert complaints == [f"{OUTSIDE}: n4"]


def test_nodes_are_shown_in_their_domain() -> None:
    root, _ = topology.domain_tree(cluster_objects(), with_nodes=True)
    shown = [line.strip().split("   ")[0] for line in lines(root)]
    assert shown == ["cluster", "s", "r1", "n1", "n2", "r2", "n3", "n4"]
    assert "    n1   free: 6 of 8 CPU, 15Gi of 16Gi memory, 5 of 8 GPU" in [
        line[2:] for line in lines(root)
    ]


def test_inconsistent_hyper_nodes_are_reported() -> None:
    """The scheduler uses the same tree."""
    root, complaints = topology.domain_tree(cluster_objects(hyper_node("r3", 1, "Node", "n1")))
    assert complaints == [
        "node n1 is a member of r1 and of r3: it belongs to none of them",
        f"{OUTSIDE}: n1, n4",
    ]
    assert msgspec.to_builtins(root)["nodes"] == 4


def test_a_cluster_without_hyper_nodes_is_one_domain() -> None:
    root, _ = topology.domain_tree(
        usage.ClusterObjects(nodes=(builders.make_node("n1", cpu="8", memory="16Gi"),))
    )
    assert lines(root) == [
        "cluster   tier 1   1 node, 1 idle   free: 8 of 8 CPU, 16Gi of 16Gi memory"
    ]


def test_the_tree_is_read_over_rest(api_server: Any, strom: Any) -> None:
    """With the errors of the HyperNodes."""
    api_server.create(kinds.NODES, builders.make_node("n1", cpu="8", memory="16Gi"))
    api_server.create(kinds.HYPER_NODES, hyper_node("r1", 1, "Node", "n1"))
    api_server.create(kinds.HYPER_NODES, hyper_node("r2", 1, "Node", "n1"))
    shown = strom("topology", "--nodes")
    assert "cluster   tier 2   1 node, 1 idle   free: 8 of 8 CPU" in shown.stdout
    assert "r1   tier 1   0 nodes, 0 idle   free: none" in shown.stdout
    assert "note: node n1 is a member of r1 and of r2" in shown.stderr
    document = msgspec.json.decode(strom("topology", "-o", "json").stdout)
    assert [each["name"] for each in document["inside"]] == ["r1", "r2"]
