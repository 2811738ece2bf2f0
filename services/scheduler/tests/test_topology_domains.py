"""HyperNodes form a tree; contradictions never bring nodes together, and are reported."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from services.scheduler.tests.support.network_objects import (
    hyper_node,
    member,
    rack,
    selected,
    spine,
)
from stromboli.scheduler.core.model import topology_domains
from stromboli.shared.api import core, topology

NODES = ("n1", "n2", "n3", "n4")


def tree(
    *hyper_nodes: topology.HyperNode,
    nodes: Sequence[str] = NODES,
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> topology_domains.TopologyTree:
    rows = {name: row for row, name in enumerate(nodes)}
    return topology_domains.build_tree(
        hyper_nodes, rows, [(labels or {}).get(name, {}) for name in nodes]
    )


def held(
    found: topology_domains.TopologyTree, nodes: Sequence[str] = NODES
) -> dict[str, list[str]]:
    """Domain -> its nodes."""
    return {
        name: [node for node, inside in zip(nodes, found.mask(index), strict=True) if inside]
        for index, name in enumerate(found.names)
    }


def test_a_domain_contains_the_nodes_of_its_descendants() -> None:
    """The root contains every node, also those in no rack."""
    found = tree(rack("r1", "n1"), rack("r2", "n2", "n3"), spine("s", "r1", "r2"))
    assert held(found) == {
        topology_domains.ROOT: ["n1", "n2", "n3", "n4"],
        "s": ["n1", "n2", "n3"],
        "r1": ["n1"],
        "r2": ["n2", "n3"],
    }
    assert dict(zip(found.names, found.tiers.tolist(), strict=True)) == {
        topology_domains.ROOT: 3,
        "s": 2,
        "r1": 1,
        "r2": 1,
    }
    assert found.complaints == []


def test_without_hyper_nodes_the_root_is_the_only_domain() -> None:
    """Its tier is 1."""
    found = tree()
    assert found.is_flat
    assert found.tiers.tolist() == [1]
    assert held(found) == {topology_domains.ROOT: list(NODES)}


def test_members_are_selected_by_pattern_and_by_label() -> None:
    """A pattern may match anywhere in the name; an empty selector selects no node."""
    exists = core.SelectorRequirement(key="rack", operator="Exists")
    found = tree(
        hyper_node("p", 1, [selected(regex_match=topology.RegexMatch(pattern="[12]$"))]),
        hyper_node(
            "l",
            1,
            [selected(label_match=core.LabelSelector(match_expressions=(exists,)))],
        ),
        hyper_node("e", 1, [selected(label_match=core.LabelSelector())]),
        labels={"n3": {"rack": "x"}},
    )
    assert held(found) == {
        topology_domains.ROOT: list(NODES),
        "e": [],
        "l": ["n3"],
        "p": ["n1", "n2"],
    }


def test_a_node_of_two_racks_belongs_to_their_common_ancestor() -> None:
    """It is unknown which of the two is correct."""
    found = tree(rack("r1", "n1", "n2"), rack("r2", "n2", "n3"), spine("s", "r1", "r2"))
    assert held(found)["r1"] == ["n1"]
    assert held(found)["r2"] == ["n3"]
    assert held(found)["s"] == ["n1", "n2", "n3"]
    assert found.complaints == [
        "node n2 is a member of r1 and of r2: it belongs to none of them, only to s"
    ]


def test_a_node_of_a_rack_and_its_spine_belongs_to_the_rack() -> None:
    """This is not a contradiction."""
    both = hyper_node("s", 2, [member("r1", "HyperNode"), member("n1")])
    found = tree(rack("r1", "n1"), both)
    assert held(found)["r1"] == ["n1"]
    assert found.complaints == []


def test_a_hyper_node_with_two_parents_belongs_to_their_common_ancestor() -> None:
    """Here that is the root."""
    found = tree(rack("r1", "n1"), spine("s1", "r1"), spine("s2", "r1"))
    assert held(found) == {topology_domains.ROOT: list(NODES), "r1": ["n1"], "s1": [], "s2": []}
    assert found.complaints == [
        "HyperNode r1 is a member of s1 and of s2: it belongs to none of them"
    ]


@pytest.mark.parametrize("tiers", [(1, 1), (2, 1), (1, 2)])
def test_a_cycle_is_cut_where_the_tier_does_not_decrease(tiers: tuple[int, int]) -> None:
    """Both HyperNodes stay usable for the nodes that they name themselves."""
    first = hyper_node("a", tiers[0], [member("b", "HyperNode"), member("n1")])
    second = hyper_node("b", tiers[1], [member("a", "HyperNode"), member("n2")])
    found = tree(first, second)
    assert found.complaints
    assert all("the member is ignored" in text for text in found.complaints)
    assert {"n1"} <= set(held(found)["a"])
    assert {"n2"} <= set(held(found)["b"])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (spine("s", "r9"), "HyperNode s: its member HyperNode r9 does not exist"),
        (
            hyper_node("s", 1, [selected(regex_match=topology.RegexMatch(pattern="("))]),
            "HyperNode s: regexMatch '(' is not a regular expression: missing ): (",
        ),
        (
            hyper_node("s", 1, [selected(regex_match=topology.RegexMatch(pattern="n" * 5000))]),
            "HyperNode s: regexMatch has 5000 characters, at most 4096 are allowed",
        ),
        (
            hyper_node(
                "s",
                2,
                [
                    topology.Member(
                        type="HyperNode",
                        selector=topology.MemberSelector(
                            regex_match=topology.RegexMatch(pattern="r")
                        ),
                    )
                ],
            ),
            "HyperNode s: a member of type HyperNode needs exactMatch",
        ),
    ],
)
def test_invalid_hyper_nodes_are_reported(made: topology.HyperNode, said: str) -> None:
    """All other HyperNodes stay usable."""
    found = tree(made, rack("r1", "n1"))
    assert found.complaints == [said]
    assert held(found)["r1"] == ["n1"]


def test_a_tier_name_of_two_tiers_means_the_lower_one() -> None:
    """The lower tier is the stricter constraint."""
    found = tree(rack("r1", "n1", tier_name="rack"), spine("s", "r1", tier_name="rack"))
    assert found.tier_names == {"rack": 1}
    assert found.complaints == ["several tiers (1, 2) have the tier name rack: the lowest is used"]


def test_sums_and_common_domains() -> None:
    """Sums include all descendants; the common domain is the lowest one that contains all."""
    found = tree(rack("r1", "n1", "n2"), rack("r2", "n3"), spine("s", "r1", "r2"))
    index = {name: number for number, name in enumerate(found.names)}
    sums = found.sums(np.array([[1, 2, 4, 8]]))[0]
    assert {name: int(sums[number]) for name, number in index.items()} == {
        topology_domains.ROOT: 15,
        "s": 7,
        "r1": 3,
        "r2": 4,
    }
    assert found.common([index["r1"], index["r2"]]) == index["s"]
    assert found.common([index["r1"]]) == index["r1"]
    assert found.common([index["s"], index["r2"]]) == index["s"]
    assert found.common([index["r1"], topology_domains.ROOT_INDEX]) == topology_domains.ROOT_INDEX
