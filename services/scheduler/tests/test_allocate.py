"""Enqueue, allocate and backfill: who gets in, who gets nodes, who gets what is left."""

import msgspec
import pytest

from services.scheduler.tests.support import default_sessions, sessions
from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.framework import closing
from stromboli.scheduler.core.model import entities
from stromboli.shared.api import core, meta
from stromboli.testkit import builders


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    """What does not fit whole leaves its room to the next."""
    decided = default_sessions.closed(
        builders.make_node("n1", cpu="4"),
        *default_sessions.gang("a", 5),
        *default_sessions.gang("b", 4),
    )
    assert set(default_sessions.binds(decided)) == {"b-0", "b-1", "b-2", "b-3"}
    job = decided.jobs["default/a"]
    assert closing.counts(job) == {"Pending": 5}
    assert "4/5 tasks" not in job.explain()
    assert job.explain().endswith("0/1 nodes are unavailable: 1 Insufficient cpu.")


def test_gangs_of_one_class_have_one_reason_until_a_node_changes() -> None:
    """A reason counts nodes, and thousands of gangs may wait for the same room. ``b`` takes the CPU
    of the node that lacks memory."""
    decided = default_sessions.closed(
        builders.make_node("n1", cpu="4", memory="1Gi"),
        builders.make_node("n2", cpu="1", memory="8Gi"),
        *default_sessions.gang("a", 1, cpu="2", memory="4Gi"),
        *default_sessions.gang("b", 1, cpu="4"),
        *default_sessions.gang("c", 1, cpu="2", memory="4Gi"),
        *default_sessions.gang("d", 1, cpu="2", memory="4Gi"),
    )
    assert default_sessions.binds(decided) == {"b-0": "n1"}
    fit_errors = [
        error for name in "acd" for error in decided.jobs[f"default/{name}"].fit_errors.values()
    ]
    assert fit_errors[0].refusals == {"Insufficient cpu": 1, "Insufficient memory": 1}
    assert fit_errors[1].refusals == {"Insufficient cpu": 2}
    assert fit_errors[2] is fit_errors[1]


def test_beyond_its_minimum_a_gang_takes_turns() -> None:
    """When it is ready, it places one task per turn: two gangs of equal order share the rest."""
    decided = default_sessions.closed(
        builders.make_node("n1", cpu="6"),
        *default_sessions.gang("a", 6, min_member=1),
        *default_sessions.gang("b", 6, min_member=1),
        tier=[sessions.plugin("gang"), sessions.plugin("drf"), sessions.plugin("predicates")],
    )
    placed = [name.partition("-")[0] for name in default_sessions.binds(decided)]
    assert sorted(placed) == ["a"] * 3 + ["b"] * 3


def test_a_gang_is_nominated_to_room_that_is_being_released() -> None:
    """Promised places are kept for it, and nothing is bound yet."""
    decided = default_sessions.closed(
        builders.make_node("n1", cpu="2"),
        builders.make_pod("leaving", node="n1", phase="Running", deleting=builders.NOON),
        *default_sessions.gang("a", 2),
        *default_sessions.gang("b", 1),
    )
    assert default_sessions.binds(decided) == {}
    statuses = [task.status for task in decided.jobs["default/a"].tasks.values()]
    assert sorted(statuses) == [entities.Status.ALLOCATED, entities.Status.PIPELINED]
    assert simulate.summarize("", decided).pipelined["default/a"] != {}


@pytest.mark.parametrize(
    "device", ["nvidia.com/gpu", "huawei.com/Ascend910", "xilinx.com/fpga-u250", "rdma/hca"]
)
def test_whatever_a_device_plugin_offers_is_counted(device: str) -> None:
    """Two nodes of four and three: a gang of threes takes one on each, a third finds none whole."""
    decided = default_sessions.closed(
        builders.make_node("n1", extra={device: 4}),
        builders.make_node("n2", extra={device: 3}),
        builders.make_node("n3"),
        *default_sessions.gang("a", 2, extra={device: 3}),
        *default_sessions.gang("b", 1, extra={device: 2}),
    )
    assert set(default_sessions.binds(decided).items()) in (
        {("a-0", "n1"), ("a-1", "n2")},
        {("a-0", "n2"), ("a-1", "n1")},
    )
    assert f"3 Insufficient {device}" in decided.jobs["default/b"].explain()


def test_a_role_that_failed_stops_the_gang_only_where_it_is_needed() -> None:
    """Tasks of other roles are still placed if the minimum can be reached with them."""
    picky = {"disk": "fast"}
    decided = default_sessions.closed(
        builders.make_node("n1"),
        builders.make_pod_group("g", 2),
        builders.make_pod("g-a-0", "g", task="a", node_selector=picky),
        builders.make_pod("g-b-0", "g", task="b"),
        builders.make_pod("g-b-1", "g", task="b"),
    )
    assert set(default_sessions.binds(decided)) == {"g-b-0", "g-b-1"}


def test_gated_pods_wait() -> None:
    """A pod with a scheduling gate is never placed."""
    decided = default_sessions.closed(
        builders.make_node("n1"),
        builders.make_pod_group("g", 1),
        builders.make_pod("g-0", "g", gates=("example.com/later",)),
        builders.make_pod("g-1", "g"),
    )
    assert default_sessions.binds(decided) == {"g-1": "n1"}


def test_of_equal_nodes_the_first_by_name_is_taken_whatever_the_order_of_objects() -> None:
    """The same cluster in another order gives the same decisions."""
    objects = [*(builders.make_node(f"n{at}") for at in range(5)), *default_sessions.gang("a", 3)]
    decided = [
        default_sessions.binds(default_sessions.closed(*each)) for each in (objects, objects[::-1])
    ]
    assert decided[0] == decided[1]
    assert decided[0]["a-0"] == "n0"


def test_a_nominated_node_is_tried_first() -> None:
    """A pod for which room was made is placed there, even if another node is better."""
    pod = builders.make_pod("g-0", "g")
    nominated = msgspec.structs.replace(
        pod, status=core.PodStatus(phase="Pending", nominated_node_name="z")
    )
    decided = default_sessions.closed(
        builders.make_node("a", cpu="64"),
        builders.make_node("z", cpu="2"),
        builders.make_pod_group("g", 1),
        nominated,
    )
    assert default_sessions.binds(decided) == {"g-0": "z"}


def test_a_pending_job_gets_in_by_enqueue_and_no_other_way_where_there_is_one() -> None:
    """With enqueue configured allocate ignores pending jobs; a closed queue admits none."""
    job = [
        builders.make_pod_group("g", 1, phase="Pending"),
        builders.make_pod("g-0", "g"),
        builders.make_node("n1"),
    ]
    assert default_sessions.binds(default_sessions.closed(*job, run="allocate")) == {"g-0": "n1"}
    assert default_sessions.binds(default_sessions.closed(*job, run="allocate, enqueue")) == {}
    assert default_sessions.binds(default_sessions.closed(*job, run="enqueue, allocate")) == {
        "g-0": "n1"
    }
    shut = simulate.run(
        sessions.configured(default_sessions.TIER, run="enqueue, allocate"),
        sessions.given([builders.make_queue(state="Closed"), *job]),
    )
    assert default_sessions.binds(shut) == {}
    assert shut.jobs["default/g"].fit_error == "queue default is Closed"


def test_backfill_places_what_asks_for_nothing() -> None:
    """A best-effort pod is placed on a full node that has a pod slot left."""
    decided = default_sessions.closed(
        builders.make_node("n1", cpu="1", pods=2),
        *default_sessions.gang("a", 1),
        builders.make_pod_group("b", 1),
        builders.make_pod("b-0", "b", cpu=None, memory=None),
        builders.make_pod("b-1", "b", cpu=None, memory=None),
        run="allocate, backfill",
    )
    assert default_sessions.binds(decided) == {"a-0": "n1", "b-0": "n1"}
    (error,) = decided.jobs["default/b"].fit_errors.values()
    assert dict(error.refusals) == {"node(s) pod number exceeded": 1}


def test_roles_that_lack_their_minimum_are_placed_first() -> None:
    """Workers beyond their minimum must not take the room that the gang needs to start."""
    decided = default_sessions.closed(
        builders.make_node("n1", cpu="3"),
        builders.make_pod_group("g", 3, min_task_member={"worker": 2, "launcher": 1}),
        *(builders.make_pod(f"g-a-{at}", "g", task="worker", priority=9) for at in range(4)),
        builders.make_pod("g-b-0", "g", task="launcher", priority=1),
    )
    assert set(default_sessions.binds(decided)) == {"g-a-0", "g-a-1", "g-b-0"}


@pytest.mark.parametrize("more", ["", "terminates"])
def test_a_gang_that_was_whole_and_lost_members_is_unknown(more: str) -> None:
    """One that is still gathering its places waits as before, though a pod of it terminates."""
    objects = [
        builders.make_node("n1", cpu="2"),
        builders.make_pod("g-0", "g", node="n1", phase="Running"),
        builders.make_pod("g-1", "g"),
        builders.make_pod("x-0", "x", node="n1", phase="Running"),
    ]
    if more:
        going = builders.make_pod("g-2", "g", node="n1", phase="Running", deleting=builders.NOON)
        objects[-1] = going
    phases = {
        before: closing.phase(
            default_sessions.closed(*objects, builders.make_pod_group("g", 2, phase=before)).jobs[
                "default/g"
            ]
        )
        for before in ("Running", "Inqueue")
    }
    assert phases == {"Running": "Unknown", "Inqueue": "Inqueue"}


def test_backfill_keeps_a_nomination_whose_node_is_not_free_yet() -> None:
    """The victim still holds its place among the node's pods; nothing is bound beside it."""
    full = builders.make_node("n1", pods=1)
    victim = default_sessions.gang("old", 1, min_member=0, cpu=None, memory=None, node="n1")
    newcomer = [
        builders.make_pod_group("new", 1, priority_class="high"),
        builders.make_pod("new-0", "new", cpu=None, memory=None),
    ]
    closed = default_sessions.closed(
        full,
        builders.make_priority_class("high", 9),
        *victim,
        *newcomer,
        run="allocate, preempt, backfill",
    )
    assert [each.task for each in closed.decisions.evictions] == ["default/old-0"]
    assert default_sessions.binds(closed) == {}
    assert closed.jobs["default/new"].waiting == 1


def unequal_gang(*cpus: int, min_member: int | None = None) -> list[meta.Object]:
    """A gang whose pods request these CPUs."""
    pods = [builders.make_pod(f"g-{at}", "g", cpu=str(cpu)) for at, cpu in enumerate(cpus)]
    return [builders.make_pod_group("g", min_member or len(pods)), *pods]


@pytest.mark.parametrize(
    ("nodes", "gang"),
    [
        ([4, 2], [2, 4]),
        ([4, 3], [3, 2, 2]),
        ([10, 10], [4, 4, 3, 3, 3, 3]),
    ],
    ids=["small tasks first", "a large node for small tasks", "a large and two small ones each"],
)
def test_a_gang_of_unequal_tasks_starts_where_all_of_them_fit(
    nodes: list[int], gang: list[int]
) -> None:
    """Whatever order its tasks have, and whichever node scores best for each of them."""
    cluster = [builders.make_node(f"n{at}", cpu=str(cpu)) for at, cpu in enumerate(nodes)]
    decided = default_sessions.closed(*cluster, *unequal_gang(*gang))
    assert len(default_sessions.binds(decided)) == len(gang)


def test_a_gang_of_unequal_tasks_starts_with_the_smallest_that_make_its_minimum() -> None:
    """A large task takes no room that two small ones need to start the gang."""
    decided = default_sessions.closed(
        builders.make_node("n1", cpu="4"), *unequal_gang(3, 2, 2, min_member=2)
    )
    assert set(default_sessions.binds(decided)) == {"g-1", "g-2"}


def test_a_gang_of_unequal_tasks_that_does_not_fit_holds_nothing() -> None:
    """The next gang gets its room, and its explanation is that of its tasks in order."""
    decided = default_sessions.closed(
        builders.make_node("n1", cpu="4"),
        *unequal_gang(2, 4),
        *default_sessions.gang("next", 4),
    )
    assert set(default_sessions.binds(decided)) == {"next-0", "next-1", "next-2", "next-3"}
    assert "1 Insufficient cpu" in decided.jobs["default/g"].explain()
