"""Queues with a policy of their own: order, fair share between owners, and who may pass."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.plugins.queue_policy import fair_shares, queue_policy
from stromboli.shared import keys
from stromboli.shared.api import meta
from stromboli.testkit import builders

USUAL = [sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")]
LOW, HIGH = builders.make_priority_class("low", 1), builders.make_priority_class("high", 9)


def run(
    *objects: meta.Object,
    actions: str = "allocate",
    now: datetime = builders.NOON,
    memory: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> session.Session:
    """A session with ``queue-policy`` in front of the usual plugins."""
    tiers = ([sessions.plugin("queue-policy", arguments)], USUAL)
    given_objects = sessions.given([LOW, HIGH, *objects], now, memory)
    return simulate.run(sessions.configured(*tiers, run=actions), given_objects)


def queue(policy: str = "", dequeue: str = "", **more: str) -> meta.Object:
    notes = {f"{keys.PREFIX}{key.replace('_', '-')}": value for key, value in more.items()}
    if policy:
        notes[keys.QUEUE_POLICY] = policy
    return sessions.queue("q", dequeue=dequeue, annotations=notes)


def job(
    name: str,
    pods: int = 1,
    *,
    at: int = 0,
    namespace: str = "default",
    user: str = "",
    priority: str = "",
    phase: str = "Inqueue",
    node: str = "",
    waits: str = "",
    made: int | None = None,
    **pod: Any,
) -> list[meta.Object]:
    """A gang of one-cpu pods, created ``at`` minutes after noon; ``made``: pods there are."""
    notes = {keys.USER: user, "volcano.sh/sla-waiting-time": waits}
    group = builders.make_pod_group(
        name,
        pods,
        namespace=namespace,
        queue="q",
        phase="Running" if node else phase,
        priority_class=priority,
        annotations={key: value for key, value in notes.items() if value},
        created=builders.NOON + timedelta(minutes=at),
    )
    state = "Running" if node else "Pending"
    return [
        group,
        *(
            builders.make_pod(
                f"{name}-{index}", name, namespace=namespace, node=node, phase=state, **pod
            )
            for index in range(pods if made is None else made)
        ),
    ]


def started(decided: session.Session) -> list[str]:
    """Jobs with a pod bound, by name."""
    return sorted({key.split("/")[1].rpartition("-")[0] for key in decided.decisions.binds})


ONE, TWO = builders.make_node("n1", cpu="1"), builders.make_node("n1", cpu="2")


@pytest.mark.parametrize(
    ("policy", "first"),
    [("", "young"), ("fifo", "old"), ("priority", "young"), ("sla", "urgent")],
)
def test_a_queue_serves_its_jobs_by_its_policy(policy: str, first: str) -> None:
    """And without a policy by the other plugins."""
    objects = [
        *job("old", at=0, priority="low"),
        *job("urgent", at=1, priority="low", waits="10m"),
        *job("young", at=2, priority="high"),
    ]
    assert started(run(ONE, queue(policy), *objects)) == [first]


def test_the_default_policy_of_queues_is_an_argument() -> None:
    objects = [*job("old", at=0), *job("young", at=1, priority="high")]
    assert started(run(ONE, queue(), *objects, arguments={"queue-policy": "fifo"})) == ["old"]


def test_a_policy_orders_its_own_queue_only() -> None:
    """Another queue is not affected."""
    other = [
        sessions.queue("other"),
        builders.make_pod_group("x", 1, queue="other"),
        builders.make_pod("x-0", "x"),
    ]
    assert started(run(TWO, queue("fifo"), *job("a"), *other)) == ["a", "x"]


def test_a_job_that_only_grows_comes_after_one_that_cannot_start() -> None:
    running = job("old", at=0, node="n1")
    more = builders.make_pod("old-9", "old")
    assert started(run(TWO, queue("fifo"), *running, more, *job("young", at=1))) == ["young"]


class TestFairShare:
    """Between owners who share a queue."""

    @pytest.mark.parametrize("by", ["namespace", "user"])
    def test_owners_take_turns_however_many_jobs_they_have(self, by: str) -> None:
        """Ten jobs of one do not keep another's out."""
        many = [
            each for at in range(10) for each in job(f"a{at}", at=at, namespace="a", user="ann")
        ]
        few = [
            each for at in range(2) for each in job(f"b{at}", at=20 + at, namespace="b", user="bob")
        ]
        node = builders.make_node("n1", cpu="4")
        decided = run(node, queue("fair-share", share_by=by), *many, *few)
        assert started(decided) == ["a0", "a1", "b0", "b1"]

    def test_a_share_follows_the_weight(self) -> None:
        objects = [
            each
            for owner in "ab"
            for at in range(8)
            for each in job(f"{owner}{at}", at=at, namespace=owner)
        ]
        shared = queue("fair-share", share_by="namespace", share_weights="a=3, b=1")
        decided = run(builders.make_node("n1", cpu="8"), shared, *objects)
        names = [name[0] for name in started(decided)]
        assert (names.count("a"), names.count("b")) == (6, 2)

    def test_what_runs_counts(self) -> None:
        objects = [
            *job("running", 2, namespace="a", node="n1"),
            *job("mine", namespace="a", at=1, priority="high"),
            *job("theirs", namespace="b", at=2),
        ]
        node = builders.make_node("n1", cpu="3")
        assert started(run(node, queue("fair-share", share_by="namespace"), *objects)) == ["theirs"]

    def test_inside_an_owner_priority_decides(self) -> None:
        objects = [*job("low", at=0, namespace="a"), *job("high", namespace="a", priority="high")]
        assert started(run(ONE, queue("fair-share", share_by="namespace"), *objects)) == ["high"]

    def test_past_use_counts_and_fades(self) -> None:
        """An hour after half of the cluster was a's, b is first although no job holds anything;
        a month later age decides again."""
        shared = queue("fair-share", share_by="namespace", share_half_life="1h")
        node = builders.make_node("n1", cpu="2")
        running = run(node, shared, *job("before", namespace="a", node="n1"))
        hour = builders.NOON + timedelta(hours=1)
        used = run(
            node,
            shared,
            *job("before", namespace="a", node="n1"),
            now=hour,
            memory=running.remember,
        )
        waiting = [*job("mine", 2, at=1, namespace="a"), *job("theirs", 2, at=2, namespace="b")]
        assert started(run(node, shared, *waiting, now=hour, memory=used.remember)) == ["theirs"]
        later = hour + timedelta(days=30)
        assert started(run(node, shared, *waiting, now=later, memory=used.remember)) == ["mine"]

    def test_a_half_life_of_nothing_forgets(self) -> None:
        shared = queue("fair-share", share_by="namespace", share_half_life="0")
        decided = run(TWO, shared, *job("before", namespace="a", node="n1"))
        assert decided.remember == {}

    def test_what_was_remembered_for_users_is_not_taken_for_namespaces(self) -> None:
        """Nor is a memory that cannot be read."""
        ran = run(TWO, queue("fair-share", share_by="user"), *job("x", user="a", node="n1"))
        waiting = [*job("mine", at=1, namespace="a"), *job("theirs", at=2, namespace="b")]
        shared = queue("fair-share", share_by="namespace")
        for memory in (ran.remember, {queue_policy.NAME: "{"}):
            later = builders.NOON + timedelta(hours=1)
            assert started(run(ONE, shared, *waiting, now=later, memory=memory)) == ["mine"]

    @given(
        st.lists(st.tuples(st.integers(1, 3000), st.floats(0, 1)), min_size=1, max_size=20),
        st.integers(1, 5000),
    )
    def test_an_average_stays_between_what_was_held_least_and_most(
        self, steps: list[tuple[int, float]], half_life: int
    ) -> None:
        """However often sessions run."""
        fair_share = fair_shares.FairShareSettings(
            "namespace", half_life=timedelta(seconds=half_life)
        )
        ssn = sessions.opened(builders.make_node("n1", cpu="1000000m"), tier=[])
        page = fair_shares.QueueHistory(
            "namespace", {"a": fair_shares.OwnerUsage(steps[0][1], steps[0][1])}
        )
        groups = sessions.opened(queue(), *job("a", namespace="a"), tier=[]).jobs["a/a"]
        for passed, held in steps:
            groups.allocated = ssn.total * 0
            groups.allocated[0] = round(int(ssn.total[0]) * held)
            book = fair_shares.OwnerShares(ssn, fair_share, page, timedelta(seconds=passed))
            book.enter(groups)
            closed = book.opened().closed()
            assert closed is not None
            page = closed
        shares = [held for _, held in steps]
        average = page.owners["a"].average if "a" in page.owners else 0.0
        assert min(shares) - 1e-5 <= average <= max(shares) + 1e-5


class TestDequeue:
    """``spec.dequeueStrategy``."""

    big_first = (*job("big", 2, at=0), *job("small", at=1))

    def test_nothing_passes_the_head_of_a_strict_queue(self) -> None:
        """And the explanation of jobs behind it names the reason."""
        strict = run(ONE, queue(dequeue="fifo"), *self.big_first)
        assert started(strict) == []
        assert "waits behind default/big" in strict.jobs["default/small"].explain()
        assert started(run(ONE, queue(dequeue="traverse"), *self.big_first)) == ["small"]
        assert started(run(ONE, queue(), *self.big_first)) == ["small"]

    def test_a_job_in_another_namespace_is_not_named(self) -> None:
        objects = [*job("secret", 2), *job("small", at=1, namespace="b")]
        decided = run(ONE, queue(dequeue="fifo"), *objects)
        waits = decided.jobs["b/small"].explain()
        assert "waits behind a job in another namespace, which" in waits
        assert "secret" not in waits

    def test_what_asks_for_nothing_does_not_pass_either(self) -> None:
        objects = [*job("big", 2), *job("free", at=1, cpu=None, memory=None)]
        decided = run(ONE, queue(dequeue="fifo"), *objects, actions="allocate, backfill")
        assert started(decided) == []

    def test_a_pending_head_keeps_others_pending(self) -> None:
        """Including jobs that have entered the queue behind it."""
        admission = sessions.plugin("overcommit", {"overcommit-factor": 1.0})
        head = builders.make_pod_group(
            "big", 2, queue="q", phase="Pending", min_resources={"cpu": 2}
        )
        objects = [head, *job("small", at=1, phase="Pending"), *job("inside", at=2)]
        document = sessions.given([ONE, queue(dequeue="fifo"), *objects])
        tiers = ([sessions.plugin("queue-policy"), admission], USUAL)
        decided = simulate.run(sessions.configured(*tiers, run="enqueue, allocate"), document)
        assert decided.jobs["default/small"].phase == "Pending"
        assert started(decided) == []

    def test_no_job_passes_the_head_by_evictions(self) -> None:
        victim = job("victim", 0, node="n1", priority="low", made=2)
        objects = [*job("big", 3, at=0), *job("small", at=1, priority="high")]
        for dequeue, evicted in (("fifo", 0), ("traverse", 1)):
            policy = queue("fifo", dequeue)
            decided = run(TWO, policy, *victim, *objects, actions="allocate, preempt")
            assert len(decided.decisions.evictions) == evicted

    def test_the_head_itself_continues_trying(self) -> None:
        """It may evict, and once it fits the others follow."""
        assert started(run(TWO, queue(dequeue="fifo"), *job("a"), *job("b", at=1))) == ["a", "b"]
        victim = job("victim", 0, node="n1", priority="low", made=2)
        head = job("big", 2, priority="high")
        decided = run(TWO, queue(dequeue="fifo"), *victim, *head, actions="allocate, preempt")
        assert len(decided.decisions.evictions) == 2

    def test_the_queue_waits_a_minute_for_the_pods_of_its_head(self) -> None:
        """No longer: pods that cannot be made must not stop a queue."""
        objects = [*job("big", 2, made=1), *job("small", at=1)]
        first = run(ONE, queue(dequeue="fifo"), *objects)
        assert started(first) == []
        for seconds, expected in ((59, []), (60, ["small"])):
            now = builders.NOON + timedelta(seconds=seconds)
            decided = run(ONE, queue(dequeue="fifo"), *objects, now=now, memory=first.remember)
            assert started(decided) == expected


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        ("queue-policy", "lifo", "is not one of fifo, priority, fair-share, sla"),
        ("share-by", "team", "is not one of job, namespace, user"),
        ("share-weights", "a:3", "write team-a=3, team-b=1"),
        ("share-weights", "a=-1", "write team-a=3, team-b=1"),
        ("share-half-life", "a day", "is not a duration"),
    ],
)
def test_an_unreadable_value_is_reported_and_the_default_holds(
    annotation: str, value: str, said: str
) -> None:
    notes = {annotation.replace("-", "_"): value}
    decided = run(ONE, queue(**notes), *job("a"))
    (complaint,) = decided.complaints
    assert complaint.startswith(f"Queue q: stromboli.sh/{annotation}: ")
    assert said in complaint
    assert started(decided) == ["a"]


def test_a_memory_is_the_same_bytes_for_the_same_past() -> None:
    objects = [each for owner in "ba" for each in job(f"{owner}0", namespace=owner, node="n1")]
    shared = queue("fair-share", share_by="namespace")
    first, second = (run(TWO, shared, *each).remember for each in (objects, objects[::-1]))
    assert first == second
    page = msgspec.json.decode(first[queue_policy.NAME])["used"]["queues"]["q"]
    assert page == {"by": "namespace", "owners": {"a": [0.0, 0.5], "b": [0.0, 0.5]}}
