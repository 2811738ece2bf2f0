"""Racks: each node once, in its lowest domain; sums of domains; what a search marks."""

from collections.abc import Mapping

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stromboli.console.core import cluster_rows, racks
from stromboli.console.core.cluster_rows import PodRow
from stromboli.shared import network_topology
from stromboli.shared.api import kinds, topology
from stromboli.testkit.builders import make_node

GPU = "nvidia.com/gpu"
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100"}


def hyper_node(name: str, tier: int, *members: str, of: str = "Node") -> topology.HyperNode:
    listed = [{"type": of, "selector": {"exactMatch": {"name": it}}} for it in members]
    spec = {"tier": tier, "tierName": {1: "leaf", 2: "spine"}.get(tier, ""), "members": listed}
    document = {"metadata": {"name": name}, "spec": spec}
    return kinds.HYPER_NODES.decode(msgspec.json.encode(document))


def pod(name: str, job: str, on: str, gpus_milli: int) -> PodRow:
    return PodRow(
        key=f"team/{name}",
        namespace="team",
        name=name,
        job=job,
        queue="gold",
        node=on,
        phase="Running",
        requests={"cpu": 1000, GPU: gpus_milli},
        gpus=gpus_milli,
    )


def shown(
    hyper_nodes: list[topology.HyperNode],
    gpus: Mapping[str, int],
    *pods: PodRow,
    within: str = "",
    q: str = "",
) -> racks.Racks:
    """The racks of nodes with some GPUs each."""
    nodes = [
        cluster_rows.node_facts(make_node(name, extra={GPU: count}, labels=H100))
        for name, count in gpus.items()
    ]
    labels = {it.name: it.labels for it in nodes}
    layout = network_topology.layout(hyper_nodes, labels)
    tier_names = {it.metadata.name: it.spec.tier_name for it in hyper_nodes}
    return racks.racks(layout, tier_names, cluster_rows.node_rows(nodes, pods), within, q)


TREE = [
    hyper_node("s0", 2, "r0", "r1", of="HyperNode"),
    hyper_node("r0", 1, "n0", "n1"),
    hyper_node("r1", 1, "n2"),
]
FOUR = dict.fromkeys(("n0", "n1", "n2", "n3"), 4)


def test_domains_are_in_preorder_with_the_sums_of_what_is_in_them() -> None:
    pods = [pod("a", "train", "n0", 3000), pod("b", "train", "n2", 4000)]
    found = shown(TREE, FOUR, *pods)
    assert [(it.name, it.tier, it.depth) for it in found.domains] == [
        ("cluster", "", 0),
        ("s0", "tier 2, spine", 1),
        ("r0", "tier 1, leaf", 2),
        ("r1", "tier 1, leaf", 2),
    ]
    sums = {it.name: (it.nodes, it.idle, it.free_gpus, it.gpus) for it in found.domains}
    assert sums == {
        "cluster": (4, 2, 9000, 16000),
        "s0": (3, 1, 5000, 12000),
        "r0": (2, 1, 5000, 8000),
        "r1": (1, 0, 0, 4000),
    }
    assert [it.largest for it in found.domains] == [4000, 4000, 4000, 0]


def test_a_node_outside_of_all_domains_is_in_the_cluster_itself() -> None:
    found = shown(TREE, FOUR)
    assert [[cell.name for cell in it.cells] for it in found.domains] == [
        ["n3"],
        [],
        ["n0", "n1"],
        ["n2"],
    ]


def test_a_cell_draws_each_gpu_and_names_its_holders() -> None:
    found = shown([], {"n0": 4}, pod("a", "train", "n0", 2000), pod("b", "dev", "n0", 500))
    (cell,) = found.domains[0].cells
    assert cell.slots == ("held", "held", "part", "free")
    assert [(it.name, it.gpus) for it in cell.holders] == [("train", 2000), ("dev", 500)]
    assert (cell.gpu_type, cell.free_gpus) == ("NVIDIA-H100", 1500)


def test_more_gpus_than_can_be_drawn_are_numbers_alone() -> None:
    (cell,) = shown([], {"n0": 64}).domains[0].cells
    assert (cell.slots, cell.free_gpus) == ((), 64000)


def test_one_domain_shows_what_is_in_it_and_where_it_is() -> None:
    found = shown(TREE, FOUR, within="r0")
    assert [it.name for it in found.domains] == ["r0"]
    assert found.path == ("cluster", "s0")
    assert [it.name for it in shown(TREE, FOUR, within="s0").domains] == ["s0", "r0", "r1"]
    assert len(shown(TREE, FOUR, within="no such domain").domains) == 4


def test_a_search_marks_nodes_by_what_is_on_them() -> None:
    pods = [pod("a", "train-large", "n0", 3000), pod("b", "train-large", "n2", 4000)]
    for q, names in (
        ("TRAIN", ["n0", "n2"]),
        ("team/train-large", ["n0", "n2"]),
        ("gold", ["n0", "n2"]),
        ("n1", ["n1"]),
        ("h100", ["n3", "n0", "n1", "n2"]),
        ("", []),
    ):
        found = shown(TREE, FOUR, *pods, q=q)
        assert [it.name for each in found.domains for it in each.cells if it.is_found] == names
        assert found.found == len(names)


def test_a_page_has_so_many_nodes_and_the_sums_have_all() -> None:
    count = racks.MOST_CELLS + 3
    found = shown([], {f"n{number}": 1 for number in range(count)}, q="n")
    (domain,) = found.domains
    assert (len(domain.cells), domain.more_cells) == (racks.MOST_CELLS, 3)
    assert (domain.nodes, domain.gpus, found.found) == (count, count * 1000, count)


def test_errors_of_hyper_nodes_are_shown() -> None:
    broken = [hyper_node("a", 1, "b", of="HyperNode"), hyper_node("b", 1, "a", of="HyperNode")]
    assert shown(broken, FOUR).complaints


@given(
    st.dictionaries(
        st.sampled_from(("h0", "h1", "h2", "h3")),
        st.tuples(
            st.integers(1, 3),
            st.lists(st.sampled_from(("h0", "h1", "h2", "n0", "n1", "n9")), max_size=3),
        ),
    )
)
def test_each_node_is_shown_once_whatever_hyper_nodes_say(
    spec: dict[str, tuple[int, list[str]]],
) -> None:
    hyper_nodes = []
    for name, (tier, members) in spec.items():
        parts = [
            {
                "type": "Node" if it[0] == "n" else "HyperNode",
                "selector": {"exactMatch": {"name": it}},
            }
            for it in members
        ]
        document = {"metadata": {"name": name}, "spec": {"tier": tier, "members": parts}}
        hyper_nodes.append(kinds.HYPER_NODES.decode(msgspec.json.encode(document)))
    found = shown(hyper_nodes, FOUR)
    assert sorted(it.name for each in found.domains for it in each.cells) == sorted(FOUR)
    assert found.domains[0].nodes == len(FOUR)
