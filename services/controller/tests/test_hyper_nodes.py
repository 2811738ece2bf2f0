"""HyperNodes: their status, and their creation from labels and files."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.controller.tests.support.core_harness import CoreHarness, KilledError
from stromboli.controller import topology_file
from stromboli.controller.core.store import controller_cache, topology_sources
from stromboli.controller.core.topology import hyper_node_discovery
from stromboli.shared import envelope, topics
from stromboli.shared.api import core, kinds, topology
from stromboli.shared.messages import cluster
from stromboli.testkit import builders

ZONES = {"net": ("zone", "rack")}


def member(name: str, kind: str = "Node") -> topology.Member:
    exact = topology.ExactMatch(name=name)
    return topology.Member(type=kind, selector=topology.MemberSelector(exact_match=exact))


def hyper_node(name: str, tier: int, *members: topology.Member) -> topology.HyperNode:
    spec = topology.HyperNodeSpec(tier=tier, members=members)
    return topology.HyperNode(metadata=builders.make_meta("hypernode", name), spec=spec)


def rack(name: str, *nodes: str, tier: int = 1) -> topology.HyperNode:
    return hyper_node(name, tier, *map(member, nodes))


def spine(name: str, *racks: str, tier: int = 2) -> topology.HyperNode:
    return hyper_node(name, tier, *(member(each, "HyperNode") for each in racks))


def harness(*hyper_nodes: topology.HyperNode, nodes: int = 4) -> CoreHarness:
    made = CoreHarness()
    for number in range(1, nodes + 1):
        made.submit(builders.make_node(f"n{number}", labels={"number": str(number)}))
    for each in hyper_nodes:
        made.submit(each)
    made.settle()
    return made


def status(of: CoreHarness, name: str) -> tuple[int, str, str]:
    """Nodes, whether it is ready, and what is wrong."""
    hyper_node_status = of.get(kinds.HYPER_NODES, name).status
    (ready,) = hyper_node_status.conditions
    assert ready.type == "Ready"
    return hyper_node_status.node_count, ready.status, ready.message


# Status


def test_nodes_are_counted_at_every_tier() -> None:
    """Also where the members are HyperNodes, and however they are selected."""
    regex = topology.Member(
        type="Node",
        selector=topology.MemberSelector(regex_match=topology.RegexMatch(pattern="^n[34]$")),
    )
    label = topology.Member(
        type="Node",
        selector=topology.MemberSelector(
            label_match=core.LabelSelector(match_labels={"number": "5"})
        ),
    )
    made = harness(
        rack("r1", "n1", "n2"), hyper_node("r2", 1, regex, label), spine("s", "r1", "r2"), nodes=5
    )
    assert status(made, "r1") == (2, "True", "")
    assert status(made, "r2") == (3, "True", "")
    assert status(made, "s") == (5, "True", "")


def test_a_count_follows_nodes_that_come_and_go() -> None:
    made = harness(rack("r1", "n1", "n9"))
    made.submit(builders.make_node("n9"))
    made.settle()
    assert status(made, "r1") == (2, "True", "")
    made.delete(kinds.NODES, "n1")
    made.settle()
    assert status(made, "r1") == (1, "True", "")


def test_a_hypernode_without_a_node_has_a_condition() -> None:
    assert status(harness(rack("r1", "n9")), "r1") == (
        0,
        "False",
        "no member matches an existing node",
    )


def test_overlapping_hypernodes_say_what_they_both_claim() -> None:
    """It counts for neither, and thousands of such nodes make one line."""
    made = harness(rack("r1", "n1", "n2"), rack("r2", *(f"n{at}" for at in range(2, 9))), nodes=8)
    text = "node n2 is a member of r1 and of r2: it belongs to none of them"
    assert status(made, "r1") == (1, "False", text)
    assert status(made, "r2") == (6, "False", text)
    made.submit(rack("r3", *(f"n{at}" for at in range(3, 9))))
    made.settle()
    many = "each of the nodes n3, n4, n5 and 3 more is a member of r2 and of r3"
    assert many in status(made, "r2")[2]


def test_a_cycle_of_hypernodes_is_reported_with_the_ignored_members() -> None:
    made = harness(rack("r1", "n1"), spine("a", "r1", "b", tier=2), spine("b", "a", tier=3))
    assert status(made, "a") == (
        1,
        "False",
        "its member HyperNode b of tier 3 is not below its own tier 2: the member is ignored",
    )
    assert status(made, "b") == (1, "True", "")


def test_a_condition_keeps_its_time_until_it_turns() -> None:
    made = harness(rack("r1", "n1"))
    first = made.get(kinds.HYPER_NODES, "r1").status.conditions[0].last_transition_time
    made.now += timedelta(minutes=1)
    made.submit(builders.make_node("n9"))
    made.settle()
    assert made.get(kinds.HYPER_NODES, "r1").status.conditions[0].last_transition_time == first
    made.delete(kinds.NODES, "n1")
    made.settle()
    assert made.get(kinds.HYPER_NODES, "r1").status.conditions[0].last_transition_time == made.now


def test_what_a_node_reports_of_itself_writes_nothing() -> None:
    """Only labels place it."""
    made = harness(rack("r1", "n1"))
    writes = len(made.done)
    made.put(kinds.NODES, {**made.objects["nodes", "n1"], "status": {"allocatable": {"cpu": "1"}}})
    made.settle()
    assert len(made.done) == writes


# Discovery by label


def synced(made: CoreHarness) -> None:
    """The monitor has seen all nodes and HyperNodes."""
    for kind in hyper_node_discovery.NEEDED:
        message = cluster.KindSynced(
            kind=kind.plural, state="synced", resource_version="1", at=made.now
        )
        draft = envelope.Draft(topic=topics.SYNC, key=kind.plural, message=message, time=made.now)
        made.show(draft)


def discovering(
    labels: Mapping[str, Mapping[str, str]], source: topology_sources.Source
) -> CoreHarness:
    made = CoreHarness()
    for name, own in labels.items():
        made.submit(builders.make_node(name, labels=own))
    synced(made)
    made.see()
    made.cache.discovery = {"label": source}
    made.dirty[controller_cache.ReconcileKey("discovery", "label")] = None
    made.settle()
    return made


def drawn(made: CoreHarness) -> dict[str, list[str]]:
    """HyperNode by the readable part of its name -> members."""
    found = {}
    for name in made.names(kinds.HYPER_NODES):
        spec = made.get(kinds.HYPER_NODES, name).spec
        members = [it.selector.exact_match.name for it in spec.members if it.selector.exact_match]
        found[name.rpartition("-")[0]] = [
            each if spec.tier == 1 else each.rpartition("-")[0] for each in members
        ]
    return found


def test_labels_make_hypernodes_from_the_lowest_up() -> None:
    made = discovering(
        {
            "n1": {"zone": "east", "rack": "R_1"},
            "n2": {"zone": "east", "rack": "R_1"},
            "n3": {"zone": "east", "rack": "r2"},
            "n4": {"rack": "r2"},
            "n5": {"zone": "east"},
        },
        topology_sources.LabelSource(ZONES),
    )
    found = drawn(made)
    assert sorted(found) == [
        "hypernode-net-tier1-r-1",
        "hypernode-net-tier1-r2",
        "hypernode-net-tier2-east",
    ]
    tiers = [made.get(kinds.HYPER_NODES, name) for name in made.names(kinds.HYPER_NODES)]
    assert {(it.spec.tier, it.spec.tier_name) for it in tiers} == {(1, "rack"), (2, "zone")}
    assert all(it.metadata.label(hyper_node_discovery.SOURCE) == "label" for it in tiers)
    assert found["hypernode-net-tier1-r-1"] == ["n1", "n2"]
    # n4 is in a rack without a zone, which differs from the rack of n3.
    assert len(tiers) == 4


def test_a_node_that_moves_moves_between_hypernodes_and_an_empty_one_goes() -> None:
    made = discovering(
        {"n1": {"rack": "a"}, "n2": {"rack": "b"}}, topology_sources.LabelSource({"net": ("rack",)})
    )
    body = made.objects["nodes", "n2"]
    made.put(kinds.NODES, {**body, "metadata": {**body["metadata"], "labels": {"rack": "a"}}})
    made.settle()
    assert drawn(made) == {"hypernode-net-tier1-a": ["n1", "n2"]}


def test_hypernodes_of_others_stay() -> None:
    made = discovering({"n1": {"rack": "a"}}, topology_sources.LabelSource({"net": ("rack",)}))
    made.submit(rack("mine", "n1"))
    name = next(iter(made.names(kinds.HYPER_NODES)))
    made.delete(kinds.HYPER_NODES, name)
    made.submit(rack(name, "n9"))
    made.settle()
    assert made.names(kinds.HYPER_NODES) == [name, "mine"]
    assert made.get(kinds.HYPER_NODES, name).spec == rack(name, "n9").spec
    assert any(it.reason == "NameTaken" for it in made.events.values())


def test_nothing_is_created_or_removed_on_half_a_cache() -> None:
    made = CoreHarness()
    made.submit(builders.make_node("n1", labels={"rack": "a"}))
    made.cache.discovery = {"label": topology_sources.LabelSource({"net": ("rack",)})}
    made.settle()
    assert made.names(kinds.HYPER_NODES) == []
    assert made.due(controller_cache.ReconcileKey("discovery", "label")) is not None
    synced(made)
    made.wait(2)
    made.settle()
    assert len(made.names(kinds.HYPER_NODES)) == 1


def test_a_node_that_cannot_be_read_is_taken_out_of_nothing() -> None:
    made = discovering(
        {"n1": {"rack": "a"}, "n2": {"rack": "b"}}, topology_sources.LabelSource({"net": ("rack",)})
    )
    made.cache.apply(builders.undecodable_record(topics.NODES, "n2", 10**6))
    made.dirty[controller_cache.ReconcileKey("discovery", "label")] = None
    made.settle()
    assert sorted(drawn(made).values()) == [["n1"], ["n2"]]


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["", "a", "b"]), st.sampled_from(["", "x"])),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 6),
)
def test_whatever_happens_to_labels_and_controllers_hypernodes_are_those_of_the_labels(
    changes: list[tuple[int, str, str]], killed_after: int
) -> None:
    """Also if the controller is killed between two writes."""
    made = discovering({}, topology_sources.LabelSource(ZONES))
    for number, rack_label, zone in changes:
        labels = {key: value for key, value in (("rack", rack_label), ("zone", zone)) if value}
        made.objects.pop(("nodes", f"n{number}"), None)
        made.submit(builders.make_node(f"n{number}", labels=labels))
        made.commands_left = killed_after
        try:
            made.settle()
        except KilledError:
            made.restart()
            made.cache.discovery = {"label": topology_sources.LabelSource(ZONES)}
        made.commands_left = None
        made.settle()
    names = {key: body["metadata"].get("labels", {}) for (_, key), body in made.objects.items()}
    nodes = {key: names[key] for plural, key in made.objects if plural == "nodes"}
    wanted = {it.name: it.spec() for it in topology_sources.LabelSource(ZONES).wanted(nodes)}
    stands = made.names(kinds.HYPER_NODES)
    assert {name: made.get(kinds.HYPER_NODES, name).spec for name in stands} == wanted


# Discovery from a file


def test_a_file_of_switches_makes_hypernodes() -> None:
    found = topology_sources.switches(
        """
        # the room on the left
        SwitchName=leaf1 Nodes=n[1-3,07],m1 LinkSpeed=100
        SwitchName=leaf2 Nodes=n[4-5]
        SwitchName=spine Switches=leaf[1-2]
        """
    ).wanted({})
    assert [(it.name, it.tier, it.kind, it.members) for it in found] == [
        ("leaf1", 1, "Node", ("m1", "n07", "n1", "n2", "n3")),
        ("leaf2", 1, "Node", ("n4", "n5")),
        ("spine", 2, "HyperNode", ("leaf1", "leaf2")),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no switch"),
        ("SwitchName=a", "switch a has nothing; expected Nodes= or Switches="),
        ("Include other.conf", "line 1: 'Include': write SwitchName="),
        ("SwitchName=A_1 Nodes=n1", "is not a valid name of a HyperNode"),
        ("SwitchName=a Nodes=n[3-1]", "not an ascending range"),
        ("SwitchName=a Nodes=n[1-3", "not a list of names"),
        ("SwitchName=a Nodes=n[x]", "not a list of numbers"),
        ("SwitchName=a Nodes=n[1-999]m[1-9999]", "more than 1000000 names"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "line 2: switch a is defined twice"),
        ("SwitchName=a Switches=b", "contains b, which is not a switch"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "in a cycle: a, b"),
    ],
)
def test_an_invalid_file_of_switches_is_rejected_as_a_whole(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        topology_sources.switches(text)


LABELLED = """
networkTopologyDiscovery:
- source: label
  enabled: true
  interval: 10m
  config:
    networkTopologyTypes:
      net: [{nodeLabel: zone}, {nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]
- source: ufm
  enabled: false
"""


def test_the_references_file_is_read(tmp_path: Path) -> None:
    """The last label is omitted if it means the nodes; a disabled source is ignored."""
    path = tmp_path / "volcano-controller.conf"
    path.write_text(LABELLED)
    file = topology_file.TopologyFile(str(path))
    assert file.poll() == {"label": topology_sources.LabelSource(ZONES)}
    assert file.poll() is None


def test_a_file_that_the_file_names_is_followed(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text("SwitchName=a Nodes=n1")
    path = tmp_path / "network.yaml"
    path.write_text(
        "networkTopologyDiscovery: [{source: file, enabled: true, config: {path: topology.conf}}]"
    )
    file = topology_file.TopologyFile(str(path))
    assert file.poll() == {"file": topology_sources.SwitchSource({"a": ("Node", ("n1",))})}
    (tmp_path / "topology.conf").write_text("SwitchName=a Nodes=")
    with pytest.raises(topology_file.FileError, match=r"topology.conf: line 1"):
        file.poll()
    assert file.poll() is None  # reported once
    (tmp_path / "topology.conf").write_text("SwitchName=a Nodes=n2")
    assert file.poll() == {"file": topology_sources.SwitchSource({"a": ("Node", ("n2",))})}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "line"),
        ("[]", "must be one YAML document"),
        (
            "networkTopologyDiscovery: [{source: ufm, enabled: true}]",
            "'ufm' is none of label, file",
        ),
        (LABELLED + LABELLED.partition("\n")[2].partition("\n")[2], "label is listed twice"),
        ("networkTopologyDiscovery: [{source: label, enabled: true}]", "has no type"),
        (LABELLED.replace("zone", "kubernetes.io/hostname"), "only the last may be kubernetes"),
        (LABELLED.replace("net:", "a-name-that-is-much-too-long:"), "must be at most 20"),
        (LABELLED.replace("nodeLabel: zone", "label: zone"), "networkTopologyTypes"),
        ("networkTopologyDiscovery: [{source: file, enabled: true}]", "source file"),
        (
            "networkTopologyDiscovery: [{source: file, enabled: true, config: {path: nowhere}}]",
            "specify a readable file",
        ),
    ],
)
def test_a_file_that_is_invalid_reports_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "network.yaml"
    path.write_text(text)
    with pytest.raises(topology_file.FileError) as error:
        topology_file.TopologyFile(str(path)).poll()
    assert reason in str(error.value)
    assert str(tmp_path) in str(error.value)
