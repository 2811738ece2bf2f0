"""Gangs that their queue did not admit are skipped until there is room for the first of their
class, and skipping them changes no decision and no position in a queue."""

from collections.abc import Collection
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.harness import SchedulerHarness, draft, fold
from stromboli.scheduler.core import plugins, policy, schedule
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import interfaces, session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import queue_order, topics
from stromboli.shared.api import meta
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

BUILT_IN = policy.Policy()
COUNTED = [sessions.plugin(name) for name in ("priority", "gang", "proportion", "binpack")]
CAPACITY = [
    sessions.plugin("priority"),
    sessions.plugin("gang"),
    sessions.plugin("capacity", enableHierarchy=True),
    sessions.plugin("predicates"),
]
TREE = policy.Policy(
    configured=sessions.configured(CAPACITY, run="enqueue, allocate, preempt, reclaim")
)
QUEUES = ("a", "b", "c")
PARENTS = {"a": "left", "b": "left", "c": "right"}


def pending_group(name: str, cpu: str, queue: str = "a", priority: str = "") -> meta.Object:
    """A gang that waits for admission; its pods are created after it."""
    return builders.make_pod_group(
        name,
        queue=queue,
        phase="Pending",
        min_resources={"cpu": cpu},
        priority_class=priority,
    )


def with_queues() -> SchedulerHarness:
    """Ten cores, and leaf queues that may hold five each."""
    harness = SchedulerHarness()
    harness.see(builders.make_node("n1", cpu="10"), builders.make_priority_class("high", 10))
    harness.see(sessions.queue("root", capability={"cpu": "10"}))
    for parent in ("left", "right"):
        harness.see(sessions.queue(parent, parent="root", capability={"cpu": "7"}))
    for name in QUEUES:
        harness.see(sessions.queue(name, parent=PARENTS[name], capability={"cpu": "5"}))
    return harness


def admitted(decided: schedule.SessionResult) -> list[str]:
    return [each.pod_group.partition("/")[2] for each in decided.decisions if each.enqueue]


def run_and_apply(
    harness: SchedulerHarness, by: policy.Policy = BUILT_IN, after_s: int = 0
) -> schedule.SessionResult:
    """A session of which the cache has assumed everything, as in the service."""
    at = builders.NOON + timedelta(seconds=after_s)
    decided = schedule.run_session(harness.cache, at, by)
    for known in decided.decisions:
        record = harness.log.append(draft(topics.DECISIONS, known.pod_group, known))
        harness.apply(record)
    note_explanations(harness, decided)
    harness.cache.finish_session(is_throttled=False)
    return decided


def note_explanations(harness: SchedulerHarness, decided: schedule.SessionResult) -> None:
    for key, explanation in decided.explanations.items():
        harness.cache.record_explanation(key, explanation)
    for order in decided.orders:
        harness.cache.record_explanation("", order)


def test_a_refused_gang_is_skipped_and_keeps_its_explanation_and_position() -> None:
    harness = with_queues()
    harness.see(pending_group("g1", "4"), pending_group("g2", "4"), pending_group("g3", "4"))
    assert admitted(run_and_apply(harness, TREE)) == ["g1"]
    explained = dict(harness.cache.explained)
    assert {key: each.tier for key, each in explained.items()} == {
        "default/g2": "enqueue",
        "default/g3": "enqueue",
    }
    harness.see(pending_group("other", "1", "c"))
    decided = run_and_apply(harness, TREE)
    assert harness.cache.model.skipped == {"default/g2", "default/g3"}
    assert decided.explanations == {}
    assert harness.cache.ordered.in_front("a", "default/g3") == ("default/g2",)


def test_room_in_the_queue_admits_the_first_skipped_gang() -> None:
    harness = with_queues()
    harness.see(*(pending_group(f"g{at}", "4") for at in range(4)))
    run_and_apply(harness, TREE)
    run_and_apply(harness, TREE)
    harness.lose(pending_group("g0", "4"))
    assert admitted(run_and_apply(harness, TREE)) == ["g1"]
    assert harness.cache.ordered.in_front("a", "default/g3") == ("default/g2",)


def test_a_skipped_gang_that_is_deleted_leaves_the_order_of_its_queue() -> None:
    harness = with_queues()
    harness.see(*(pending_group(f"g{at}", "4") for at in range(4)))
    run_and_apply(harness, TREE)
    harness.lose(pending_group("g2", "4"))
    decided = run_and_apply(harness, TREE)
    assert decided.explanations == {"default/g2": None}
    assert harness.cache.ordered.in_front("a", "default/g3") == ("default/g1",)


def test_explanations_of_skipped_gangs_are_renewed_in_turn() -> None:
    """Their numbers would otherwise stay those of the first attempt."""
    harness = with_queues()
    harness.see(*(pending_group(f"g{at}", "4") for at in range(4)))
    run_and_apply(harness, TREE)
    harness.see(pending_group("other", "1", "a"))
    run_and_apply(harness, TREE, after_s=1)
    before = harness.cache.explained["default/g3"]
    run_and_apply(harness, TREE, after_s=30)
    renewed = harness.cache.explained["default/g3"]
    assert before.shortages[0].promised == 4000
    assert renewed.shortages[0].promised == 5000


def test_a_changed_queue_brings_back_its_gangs() -> None:
    harness = with_queues()
    harness.see(*(pending_group(f"g{at}", "4") for at in range(2)))
    run_and_apply(harness, TREE)
    grown = sessions.queue("a", parent="left", capability={"cpu": "9"})
    harness.see(
        msgspec.structs.replace(grown, metadata=builders.make_meta("queue", "a", version=2))
    )
    left = sessions.queue("left", parent="root", capability={"cpu": "9"})
    harness.see(
        msgspec.structs.replace(left, metadata=builders.make_meta("queue", "left", version=2))
    )
    assert admitted(run_and_apply(harness, TREE)) == ["g1"]


@pytest.mark.parametrize("by_request", [True, False])
def test_a_session_votes_on_classes_of_skipped_gangs_and_not_on_each(by_request: bool) -> None:
    """Only if every vote depends on the request alone."""
    requested: list[str] = []

    class Votes:
        def __init__(self, options: configuration.PluginOptions) -> None: ...

        def open(self, ssn: session.Session) -> None:
            def vote(job: entities.Job) -> int:
                requested.append(job.name)
                return extension_points.REJECT

            ssn.add_job_enqueueable(vote, by_request=by_request)

        def close(self, ssn: session.Session) -> None: ...

    def find(name: str, already_open: Collection[str]) -> interfaces.PluginFactory:
        return Votes if name == "binpack" else plugins.find(name, already_open)

    by = policy.Policy(configured=sessions.configured(COUNTED, run="enqueue, allocate"))
    harness = with_queues()
    harness.see(*(pending_group(f"g{at:02}", "1") for at in range(30)))
    schedule.run_session(harness.cache, builders.NOON, by, find=find)
    requested.clear()
    harness.see(pending_group("new", "1"))
    schedule.run_session(harness.cache, builders.NOON, by, find=find)
    assert len(requested) == (2 if by_request else 31)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("submit"),
            st.sampled_from(QUEUES),
            st.sampled_from(("1", "2", "4")),
            st.sampled_from(("", "high")),
        ),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("resize"), st.sampled_from(QUEUES), st.sampled_from(("3", "6"))),
        st.just(("session",)),
    ),
    max_size=40,
)


@given(steps=STEPS, by=st.sampled_from((BUILT_IN, TREE)))
def test_skipping_changes_no_admission_and_no_order(
    steps: list[tuple[str, ...]], by: policy.Policy
) -> None:
    harness, jobs, versions = with_queues(), dict[str, meta.Object](), 1
    for number, step in enumerate([*steps, ("session",)]):
        match step:
            case ("submit", queue, cpu, priority):
                name = f"g{number:02}"
                jobs[name] = pending_group(name, cpu, queue, priority)
                harness.see(jobs[name])
            case ("delete", at) if jobs:
                harness.lose(jobs.pop(sorted(jobs)[int(at) % len(jobs)]))
            case ("resize", queue, cpu):
                versions += 1
                changed = sessions.queue(queue, parent=PARENTS[queue], capability={"cpu": cpu})
                metadata = builders.make_meta("queue", queue, version=versions)
                harness.see(msgspec.structs.replace(changed, metadata=metadata))
            case ("session",):
                decide_as_without_skipping(harness, by)
            case _:
                pass


def decide_as_without_skipping(harness: SchedulerHarness, by: policy.Policy) -> None:
    """A new cache of the same records skips nothing."""
    expected = schedule.run_session(fold(harness.log.records), builders.NOON, by)
    decided = schedule.run_session(harness.cache, builders.NOON, by)
    assert admitted(decided) == admitted(expected)
    note_explanations(harness, decided)
    orders = queue_order.QueueOrders()
    for order in expected.orders:
        orders.put(order)
    for key, explanation in expected.explanations.items():
        assert isinstance(explanation, messages.PodGroupExplained)
        assert key in harness.cache.explained
        in_front = harness.cache.ordered.in_front(explanation.queue, key)
        assert in_front == orders.in_front(explanation.queue, key)
    assert harness.cache.explained.keys() == expected.explanations.keys()
