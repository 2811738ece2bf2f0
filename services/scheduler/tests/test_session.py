"""What a session decides: gangs whole or absent, in order, on nodes that take them."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from stromboli.scheduler.core import policy, schedule
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.core.config import configuration
from stromboli.shared import envelope
from stromboli.shared.api import core, meta
from stromboli.testkit import builders, topic_log

POLICY = policy.Policy()
BASELINE = policy.Policy(
    configured=configuration.Configuration(
        actions=("enqueue", "allocate", "backfill"),
        tiers=tuple(
            (configuration.PluginOptions(name),)
            for name in ("random-order", "predicates", "nodeorder")
        ),
    )
)
ROOM_FOR_THREE = builders.make_node("n1", cpu="3")


def fold(records: Sequence[envelope.Record]) -> cluster_cache.ClusterCache:
    cache = cluster_cache.ClusterCache(POLICY.scheduler_names)
    for record in records:
        cache.apply(record)
    return cache


def decide(
    *objects: meta.Object,
    by: policy.Policy = POLICY,
    seed: int = 0,
) -> schedule.SessionResult:
    log = topic_log.TopicLog()
    log.see(builders.make_queue(), *objects)
    return schedule.run_session(
        fold(log.records), builders.NOON + schedule.CREATION_GRACE, by, seed
    )


def binds(decided: schedule.SessionResult) -> dict[str, str]:
    return {bind.pod: bind.node for known in decided.decisions for bind in known.binds}


def members(group: str, number: int, cpu: str = "1", task: str = "worker") -> list[core.Pod]:
    return [
        builders.make_pod(f"{group}-{task}-{at}", group, cpu=cpu, task=task, index=at)
        for at in range(number)
    ]


def test_a_gang_that_fits_is_placed_whole() -> None:
    decided = decide(ROOM_FOR_THREE, builders.make_pod_group("g1", 3), *members("g1", 3))
    assert binds(decided) == dict.fromkeys(["g1-worker-0", "g1-worker-1", "g1-worker-2"], "n1")


def test_nodes_with_huge_capacity_block_no_gang() -> None:
    """Their sum is beyond 64 bits: wrapped around it was less than nothing."""
    nodes = [builders.make_node(f"n{at}", cpu="3", memory="60Pi") for at in range(150)]
    by = policy.Policy(
        configured=configuration.Configuration(
            actions=("enqueue", "allocate"),
            tiers=(
                tuple(
                    configuration.PluginOptions(name)
                    for name in ("gang", "overcommit", "proportion", "predicates")
                ),
            ),
        )
    )
    group = builders.make_pod_group("g1", 3, min_resources={"cpu": "3", "memory": "3Gi"})
    decided = decide(*nodes, group, *members("g1", 3), by=by)
    assert len(binds(decided)) == 3


def test_a_gang_that_does_not_fit_takes_nothing() -> None:
    decided = decide(ROOM_FOR_THREE, builders.make_pod_group("g1", 4), *members("g1", 4))
    assert decided.decisions == ()


def test_the_room_of_a_discarded_statement_is_free_for_the_next_gang() -> None:
    decided = decide(
        ROOM_FOR_THREE,
        builders.make_pod_group("big", 4),
        *members("big", 4),
        builders.make_pod_group("small", 3),
        *members("small", 3),
    )
    assert set(binds(decided)) == {f"small-worker-{at}" for at in range(3)}


def test_tasks_beyond_the_minimum_are_placed_while_they_fit() -> None:
    decided = decide(ROOM_FOR_THREE, builders.make_pod_group("g1", 2), *members("g1", 5))
    assert len(binds(decided)) == 3


def test_no_surplus_takes_what_another_gang_needs_to_begin() -> None:
    decided = decide(
        ROOM_FOR_THREE,
        builders.make_pod_group("a", 1),
        *members("a", 3),
        builders.make_pod_group("b", 2),
        *members("b", 2),
    )
    assert set(binds(decided)) == {"a-worker-0", "b-worker-0", "b-worker-1"}


def test_every_role_reaches_its_minimum() -> None:
    group = builders.make_pod_group("g1", 3, min_task_member={"ps": 1, "worker": 2})
    decided = decide(
        builders.make_node("n1", cpu="9"), group, *members("g1", 3), *members("g1", 1, task="ps")
    )
    assert "g1-ps-0" in binds(decided)


def test_a_role_without_enough_pods_keeps_the_gang_waiting() -> None:
    group = builders.make_pod_group("g1", 3, min_task_member={"ps": 1, "worker": 2})
    decided = decide(ROOM_FOR_THREE, group, *members("g1", 3))
    assert decided.decisions == ()
    explained = decided.explanations["default/g1"]
    assert explained is not None
    assert explained.tier == "gang"


def test_higher_priority_goes_first() -> None:
    decided = decide(
        ROOM_FOR_THREE,
        builders.make_priority_class("high", 10),
        builders.make_pod_group("a", 2),
        *members("a", 2),
        builders.make_pod_group("b", 2, priority_class="high"),
        *members("b", 2),
    )
    assert set(binds(decided)) == {"b-worker-0", "b-worker-1"}


@pytest.mark.parametrize(
    ("priority", "phase", "bound"),
    [
        ("", "Running", {"broken-worker-1"}),
        ("high", "Running", {"b-worker-0", "b-worker-1"}),
        ("", "Succeeded", {"b-worker-0", "b-worker-1"}),
    ],
    ids=["of equal priority", "not before higher priority", "a finished pod holds no place"],
)
def test_a_gang_below_its_minimum_that_holds_places_goes_first(
    priority: str, phase: str, bound: set[str]
) -> None:
    """Its resources are wasted until it is complete; priority still comes first."""
    late = builders.NOON + timedelta(minutes=1)
    decided = decide(
        builders.make_node("n1", cpu="3" if phase == "Running" else "2"),
        builders.make_priority_class("high", 10),
        builders.make_pod_group("broken", 2, created=late),
        builders.make_pod("broken-worker-0", "broken", node="n1", phase=phase),
        builders.make_pod("broken-worker-1", "broken"),
        builders.make_pod_group("b", 2, priority_class=priority),
        *members("b", 2),
    )
    assert set(binds(decided)) == bound


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (builders.make_node("n1", cpu="500m"), "Insufficient cpu"),
        (builders.make_node("n1", memory="1Mi"), "Insufficient memory"),
        (builders.make_node("n1", pods=0), "Insufficient pods"),
        (builders.make_node("n1", unschedulable=True), "node(s) were unschedulable"),
        (
            builders.make_node("n1", taints=[core.Taint(key="k", effect="NoSchedule")]),
            "node(s) had untolerated taint(s)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_node_rejects_with_the_reason_of_kubernetes(node: core.Node, reason: str) -> None:
    decided = decide(node, builders.make_pod_group("g1"), builders.make_pod("p1", "g1"))
    explained = decided.explanations["default/g1"]
    assert explained is not None
    assert [refusal.reason for refusal in explained.refusals] == [reason]
    assert explained.message.endswith(f"0/1 nodes are unavailable: 1 {reason}.")


def test_pods_with_scheduling_gates_wait() -> None:
    decided = decide(
        ROOM_FOR_THREE, builders.make_pod_group("g1"), builders.make_pod("p1", "g1", gates=["mine"])
    )
    assert decided.decisions == ()


def test_pods_that_ask_for_nothing_are_placed_too() -> None:
    decided = decide(
        ROOM_FOR_THREE,
        builders.make_pod_group("g1"),
        builders.make_pod("p1", "g1", cpu=None, memory=None),
    )
    assert binds(decided) == {"p1": "n1"}


def test_pods_of_other_schedulers_and_of_no_group_are_not_changed() -> None:
    decided = decide(
        ROOM_FOR_THREE,
        builders.make_pod_group("g1"),
        builders.make_pod("p1", "g1", scheduler="default-scheduler"),
        builders.make_pod("p2"),
    )
    assert decided.decisions == ()


@pytest.mark.parametrize("state_of_queue", ["Closed", "Closing", "Unknown", None])
def test_only_an_open_queue_lets_anything_in(state_of_queue: str | None) -> None:
    queues = [builders.make_queue("q", state=state_of_queue)] if state_of_queue else []
    group = builders.make_pod_group("g1", queue="q", phase="Pending")
    decided = decide(ROOM_FOR_THREE, *queues, group, builders.make_pod("p1", "g1"))
    assert decided.decisions == ()
    explained = decided.explanations["default/g1"]
    assert explained is not None
    assert explained.tier == "queue-closed"


def test_a_new_pod_group_enters_its_queue_before_it_has_pods() -> None:
    decided = decide(ROOM_FOR_THREE, builders.make_pod_group("g1", 3, phase="Pending"))
    assert [(known.pod_group, known.enqueue) for known in decided.decisions] == [
        ("default/g1", True)
    ]


def test_a_queue_enqueues_what_it_can_hold() -> None:
    groups = [
        builders.make_pod_group(f"g{at}", phase="Pending", min_resources={"cpu": "1200m"})
        for at in range(3)
    ]
    decided = decide(ROOM_FOR_THREE, *groups)
    assert [known.pod_group for known in decided.decisions] == ["default/g0", "default/g1"]
    explained = decided.explanations["default/g2"]
    assert explained is not None
    assert explained.tier == "enqueue"
    assert explained.message == "queue resource quota insufficient: insufficient cpu"
    assert [(short.resource, short.capability) for short in explained.shortages] == [("cpu", 3000)]


def test_a_gang_that_is_not_enqueued_has_the_missing_resources() -> None:
    """In the resources that nodes have, not in the names by which quotas count them again."""
    wide = builders.make_pod_group(
        "wide", phase="Pending", min_resources={"cpu": "64", "requests.cpu": "64", "pods": 64}
    )
    explained = decide(ROOM_FOR_THREE, wide).explanations["default/wide"]
    assert explained is not None
    assert [(short.resource, short.needed, short.free) for short in explained.shortages] == [
        ("cpu", 64_000, 3_000)
    ]


def test_a_bad_quantity_stops_its_own_gang_only() -> None:
    decided = decide(
        ROOM_FOR_THREE,
        builders.make_pod_group("bad"),
        builders.make_pod("bad-0", "bad", cpu="much"),
        builders.make_pod_group("good"),
        builders.make_pod("good-0", "good"),
    )
    assert binds(decided) == {"good-0": "n1"}
    explained = decided.explanations["default/bad"]
    assert explained is not None
    assert explained.tier == "invalid"
    assert "'much' is not a quantity" in explained.message


def test_equal_nodes_are_taken_by_name() -> None:
    nodes = [builders.make_node(name, cpu="1") for name in ("c", "a", "b")]
    decided = decide(*nodes, builders.make_pod_group("g1", 3), *members("g1", 3))
    assert list(binds(decided).values()) == ["a", "b", "c"]


def test_no_more_is_decided_than_may_be_in_flight() -> None:
    slowly = policy.Policy(max_in_flight=2)
    groups = [builders.make_pod_group(f"g{at}", 2) for at in range(2)]
    pods = [pod for at in range(2) for pod in members(f"g{at}", 2)]
    decided = decide(builders.make_node("n1", cpu="9"), *groups, *pods, by=slowly)
    assert set(binds(decided)) == {"g0-worker-0", "g0-worker-1"}
    assert decided.is_throttled
    assert "default/g1" not in decided.explanations


def test_a_session_that_decides_nothing_leaves_no_record() -> None:
    assert decide(ROOM_FOR_THREE).record is None


def test_a_session_that_decides_records_its_whole_input() -> None:
    decided = decide(ROOM_FOR_THREE, builders.make_pod_group("g1", phase="Pending"), seed=7)
    assert decided.record is not None
    assert decided.record.offsets["cluster.podgroups"] == 1
    assert (decided.record.seed, decided.record.configuration) == (7, POLICY.configured.digest)


def test_without_the_gang_plugin_pods_are_bound_one_by_one() -> None:
    """The baseline: two gangs of three share room for four and neither is whole."""
    groups = [builders.make_pod_group(f"g{at}", 3) for at in range(2)]
    pods = [pod for at in range(2) for pod in members(f"g{at}", 3)]
    node = builders.make_node("n1", cpu="4")
    partly = [
        len({pod.rpartition("-worker-")[0] for pod in binds(decided)}) == 2
        for decided in (decide(node, *groups, *pods, by=BASELINE, seed=seed) for seed in range(4))
    ]
    assert any(partly)


def test_the_seed_decides_the_shuffled_order() -> None:
    pods = [builders.make_pod(f"p{at}", f"g{at}") for at in range(6)]
    groups = [builders.make_pod_group(f"g{at}") for at in range(6)]
    outcomes = {
        seed: binds(decide(ROOM_FOR_THREE, *groups, *pods, by=BASELINE, seed=seed))
        for seed in range(4)
    }
    again = binds(decide(ROOM_FOR_THREE, *groups, *pods, by=BASELINE, seed=0))
    assert again == outcomes[0]
    assert len({tuple(sorted(outcome)) for outcome in outcomes.values()}) > 1


def test_names_and_the_seed_alone_decide_the_shuffled_order() -> None:
    """Uids differ in every run, and a demonstration must have the same result."""
    groups = [builders.make_pod_group(f"g{at}") for at in range(6)]
    first, second = (
        binds(
            decide(
                ROOM_FOR_THREE,
                *groups,
                *(builders.make_pod(f"p{at}", f"g{at}", generation=run) for at in range(6)),
                by=BASELINE,
            )
        )
        for run in (1, 2)
    )
    assert sorted(first) == sorted(second)
