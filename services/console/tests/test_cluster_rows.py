"""Queues as a tree, nodes with their holders, pending by reason."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stromboli.console.core import amounts, cluster_rows
from stromboli.console.core.cluster_rows import PodRow
from stromboli.console.core.job_rows import GroupRow
from stromboli.shared.api import kinds, scheduling

GPU = "nvidia.com/gpu"


def queue(name: str, parent: str = "", **spec: Any) -> scheduling.Queue:
    document = {"metadata": {"name": name}, "spec": {"parent": parent, **spec}}
    return kinds.QUEUES.decode(msgspec.json.encode(document))


def node(name: str, *, gpus: int = 4, is_ready: bool = True, **spec: Any) -> cluster_rows.NodeFacts:
    amounts_of_node = {"cpu": "16", "memory": "64Gi"} | ({GPU: str(gpus)} if gpus else {})
    condition = {"type": "Ready", "status": "True" if is_ready else "False"}
    status = {"allocatable": amounts_of_node, "conditions": [condition]}
    document = {"metadata": {"name": name}, "spec": spec, "status": status}
    return cluster_rows.node_facts(kinds.NODES.decode(msgspec.json.encode(document)))


def pod(name: str, job: str = "", on: str = "", gpus: int = 0) -> PodRow:
    return PodRow(
        key=f"default/{name}",
        namespace="default",
        name=name,
        job=job,
        queue="gold",
        node=on,
        phase="Running" if on else "Pending",
        requests={"cpu": 1000, GPU: 1000 * gpus},
        gpus=1000 * gpus,
    )


def group(name: str, queue: str, phase: str, **rest: str) -> GroupRow:
    return GroupRow(key=f"default/{name}", queue=queue, phase=phase, **rest)


def test_queues_are_a_tree_in_preorder() -> None:
    queues = [queue("b", "a"), queue("root"), queue("a", "root"), queue("c", "root")]
    rows = cluster_rows.queue_rows(queues, [])
    assert [(it.name, it.depth) for it in rows] == [("root", 0), ("a", 1), ("b", 2), ("c", 1)]


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([*"abcdef", "root", "gone", ""])))
def test_every_queue_is_shown_once_whatever_its_parent_is(parents: dict[str, str]) -> None:
    """Stored parents may be missing, or a loop."""
    rows = cluster_rows.queue_rows([queue(*pair) for pair in parents.items()], None)
    assert sorted(it.name for it in rows) == sorted(parents)


def test_a_queue_beyond_its_deserved_share_is_marked() -> None:
    document = {
        "metadata": {"name": "gold"},
        "spec": {"deserved": {GPU: "4"}, "capability": {GPU: "8"}},
        "status": {"allocated": {GPU: "6"}},
    }
    (row,) = cluster_rows.queue_rows([kinds.QUEUES.decode(msgspec.json.encode(document))], [])
    (gauge,) = row.gauges
    assert (gauge.used, gauge.limit, gauge.deserved) == ("6", "8", "4")
    assert (gauge.percent, gauge.deserved_percent, gauge.is_over) == (75.0, 50.0, True)


def test_jobs_of_a_queue_are_counted_by_their_pod_groups() -> None:
    groups = [
        group("one", "gold", "Running"),
        group("two", "gold", "Pending"),
        group("three", "gold", "Inqueue"),
        group("four", "gold", "Completed"),
    ]
    (row,) = cluster_rows.queue_rows([queue("gold")], groups)
    assert (row.running, row.pending) == (1, 2)


def test_a_node_names_the_holders_of_its_gpus() -> None:
    pods = [
        pod("train-0", "train", "n1", 2),
        pod("train-1", "train", "n1", 1),
        pod("notebook", "", "n1", 1),
        pod("waiting", "later", "", 4),
    ]
    n1, n2 = cluster_rows.node_rows([node("n2"), node("n1")], pods)
    assert [(it.name, it.is_job, it.gpus, it.pods) for it in n1.holders] == [
        ("train", True, 3000, 2),
        ("notebook", False, 1000, 1),
    ]
    assert (n1.free_gpus, n2.free_gpus, n2.holders) == (0, 4000, ())


def test_a_node_shows_why_it_takes_no_pods() -> None:
    taints = [{"key": "maintenance", "effect": "NoSchedule"}]
    away, cordoned = cluster_rows.node_rows(
        [node("a", is_ready=False), node("b", unschedulable=True, taints=taints)], []
    )
    assert (away.state, cordoned.state) == ("NotReady", "Cordoned")
    assert cordoned.problems == ("maintenance:NoSchedule",)


def test_a_pod_that_has_ended_holds_nothing() -> None:
    ended = kinds.PODS.decode(b'{"metadata": {"name": "p"}, "status": {"phase": "Succeeded"}}')
    assert cluster_rows.pod_row(ended) is None


def test_totals_add_up_bound_pods() -> None:
    totals = cluster_rows.totals(
        [node("a"), node("b", gpus=0)], [pod("p", "j", "a", 3), pod("q", "j")]
    )
    assert (totals.nodes, totals.ready, totals.running, totals.pending) == (2, 2, 1, 1)
    gpu = next(it for it in totals.gauges if it.resource == "GPU")
    assert (gpu.used, gpu.limit, gpu.percent) == ("3", "4", 75.0)


def test_pending_jobs_are_counted_by_reason() -> None:
    groups = [
        group("a", "q", "Pending", reason="NotEnoughResources", message="can never fit: 8 of 4"),
        group("b", "q", "Pending", reason="NotEnoughResources", message="short of 3 GPUs"),
        group("c", "q", "Pending", reason="NotEnoughResources", message="short of 1 GPU"),
        group("d", "q", "Running"),
    ]
    assert cluster_rows.pending_by_reason(groups) == [
        ("not enough free resources", 2),
        ("can never fit into the cluster or its queue", 1),
    ]


def test_gpus_of_all_vendors_and_mig_instances_count() -> None:
    found = {GPU: 2000, "amd.com/gpu": 1000, "nvidia.com/mig-1g.5gb": 3000, "cpu": 1}
    assert amounts.gpus(found) == 6000


def test_a_quantity_that_is_none_is_left_out() -> None:
    assert amounts.read({"cpu": "much", "memory": "1Ki"}) == {"memory": 1024}


def test_a_queue_shows_what_it_borrows_and_what_is_guaranteed() -> None:
    gold = queue(
        "gold",
        deserved={GPU: "4"},
        capability={GPU: "8"},
        guarantee={"resource": {GPU: "2"}},
    )
    status = msgspec.structs.replace(gold.status, allocated={GPU: "6"})
    (row,) = cluster_rows.queue_rows([msgspec.structs.replace(gold, status=status)], [])
    (gauge,) = row.gauges
    assert (gauge.used, gauge.limit, gauge.deserved) == ("6", "8", "4")
    assert (gauge.borrowed, gauge.guarantee, gauge.is_over) == ("2", "2", True)
    at_share = msgspec.structs.replace(gold.status, allocated={GPU: "4"})
    (row,) = cluster_rows.queue_rows([msgspec.structs.replace(gold, status=at_share)], [])
    assert (row.gauges[0].borrowed, row.gauges[0].is_over) == ("", False)
