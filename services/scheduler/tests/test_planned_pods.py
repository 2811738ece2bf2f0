"""Gangs with a plan: a session that admits them places the pods that their job will create."""

import msgspec
import pytest

from services.scheduler.tests.support.harness import SchedulerHarness, draft, fold
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import core, scheduling
from stromboli.shared.messages import cluster, plans
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

JOB = builders.make_job("j")
GROUP_KEY = "default/g"


def template(cpu: str = "1") -> core.Pod:
    pod = builders.make_pod(
        "", "g", cpu=cpu, task="w", index=0, owner=JOB, annotations={keys.JOB_VERSION: "0"}
    )
    metadata = msgspec.structs.replace(pod.metadata, uid="", creation_timestamp=None)
    return msgspec.structs.replace(pod, metadata=metadata)


def plan(replicas: int, cpu: str = "1", version: int = 0, job_uid: str = "") -> plans.PodsPlanned:
    uid = job_uid or JOB.metadata.uid
    task = plans.PlannedTask(task="w", prefix="j-w", replicas=replicas, template=template(cpu))
    return plans.PodsPlanned(
        pod_group=GROUP_KEY,
        job="default/j",
        job_uid=uid,
        version=version,
        digest=plans.digest_of(uid, version, (task,)),
        tasks=(task,),
    )


def group(minimum: int, version: int = 1) -> scheduling.PodGroup:
    return builders.make_pod_group(
        "g",
        minimum,
        phase="Pending",
        owner=JOB,
        annotations={keys.JOB_VERSION: "0"},
        version=version,
    )


def publish(harness: SchedulerHarness, planned: plans.PodsPlanned | None) -> None:
    made = draft(topics.BATCH_PLANS, GROUP_KEY, planned or plan(1))
    if planned is None:
        made = msgspec.structs.replace(made, message=None, object_uid="j", object_version="0")
    harness.apply(harness.log.append(made))


def created(bind: messages.Bind, decision: str, version: int) -> core.Pod:
    """The pod as the controller creates it for a planned bind."""
    pod = template()
    marks = {**(pod.metadata.annotations or {}), keys.DECISION: decision}
    marks[keys.TASK_INDEX] = str(bind.index)
    metadata = msgspec.structs.replace(
        pod.metadata,
        name=bind.pod,
        uid=f"{bind.pod}-{version}",
        resource_version=str(version),
        annotations=marks,
    )
    spec = msgspec.structs.replace(pod.spec, node_name=bind.node)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def answer(
    harness: SchedulerHarness, result: messages.Result, created_version: int = 0, at: int = -1
) -> envelope.Record:
    """The outcome of the statement ``at`` this place of the log. ``created_version``: of the first
    pod."""
    decision = harness.statements[at]
    statement = envelope.decode(decision)
    assert isinstance(statement, messages.StatementDecided)
    outcome = messages.DecisionAnswered(
        decision=statement.decision or decision.id,
        decision_offset=decision.offset,
        pod_group=GROUP_KEY,
        enqueue="executed",
        enqueued_version=2,
        tasks=tuple(
            messages.TaskOutcome(
                namespace="default",
                pod=bind.pod,
                uid="",
                result=result,
                created_version=created_version and created_version + number,
            )
            for number, bind in enumerate(statement.binds)
        ),
    )
    record = harness.log.append(draft(topics.OUTCOMES, decision.id, outcome))
    harness.apply(record)
    return decision


@pytest.fixture
def harness() -> SchedulerHarness:
    made = SchedulerHarness()
    made.see(builders.make_queue(), builders.make_node("n1", cpu="4"))
    return made


def test_a_planned_gang_that_fits_is_admitted_and_bound_by_one_statement(
    harness: SchedulerHarness,
) -> None:
    planned = plan(3)
    publish(harness, planned)
    harness.see(group(3))
    (statement,) = harness.session().decisions
    assert statement.enqueue
    assert statement.starts_gang
    assert [(bind.pod, bind.node, bind.index) for bind in statement.binds] == [
        ("j-w-0", "n1", 0),
        ("j-w-1", "n1", 1),
        ("j-w-2", "n1", 2),
    ]
    assert {(bind.uid, bind.plan) for bind in statement.binds} == {("", planned.digest)}
    node = builders.make_node("n1", cpu="4")
    assert {bind.node_uid for bind in statement.binds} == {node.metadata.uid}
    assert harness.used_cpu() == 3000


def test_a_planned_gang_that_does_not_fit_is_only_admitted(harness: SchedulerHarness) -> None:
    """Its job creates pending pods, which autoscalers and users see."""
    publish(harness, plan(5))
    harness.see(group(5))
    (statement,) = harness.session().decisions
    assert statement.enqueue
    assert statement.binds == ()
    assert harness.used_cpu() == 0


def test_of_an_elastic_gang_the_members_that_fit_are_bound(harness: SchedulerHarness) -> None:
    publish(harness, plan(6))
    harness.see(group(2))
    (statement,) = harness.session().decisions
    assert len(statement.binds) == 4


@pytest.mark.parametrize(
    "other",
    [None, plan(2, version=1), plan(2, job_uid="another")],
    ids=["withdrawn", "of another version", "of another job"],
)
def test_without_the_plan_of_its_job_version_a_gang_is_only_admitted(
    harness: SchedulerHarness, other: plans.PodsPlanned | None
) -> None:
    publish(harness, plan(2))
    publish(harness, other)
    harness.see(group(2))
    (statement,) = harness.session().decisions
    assert statement.binds == ()


def test_no_planned_pod_is_placed_while_its_name_is_taken(harness: SchedulerHarness) -> None:
    """Such as by a pod of an earlier job that still terminates."""
    publish(harness, plan(2))
    harness.see(builders.make_pod("j-w-1", "other", node="n1"), group(2))
    (statement,) = harness.session().decisions
    assert statement.binds == ()


def test_two_planned_gangs_of_one_session_share_the_room(harness: SchedulerHarness) -> None:
    publish(harness, plan(3))
    harness.see(
        group(3),
        builders.make_pod_group("old", 2),
        *(builders.make_pod(f"old-w-{at}", "old", cpu="1") for at in range(2)),
    )
    decided = {it.pod_group: len(it.binds) for it in harness.session().decisions}
    assert decided == {"default/old": 2, GROUP_KEY: 0}


def test_the_room_of_planned_pods_is_held_until_they_are_seen(harness: SchedulerHarness) -> None:
    publish(harness, plan(3))
    harness.see(group(3))
    (statement,) = harness.session().decisions
    decision = answer(harness, "executed", created_version=9)
    harness.cache.finish_session(is_throttled=False)
    assert harness.used_cpu() == 3000
    harness.cache.rebuild()
    assert harness.used_cpu() == 3000
    for number, bind in enumerate(statement.binds):
        harness.see(created(bind, decision.id, 9 + number))
        assert harness.used_cpu() == 3000
    assert len(harness.cache.assumed) == 1  # the entry is open
    restarted = fold(harness.log.records)
    restarted.model.settle()
    assert int(restarted.model.nodes.used[0, 0]) == 3000


def test_refused_planned_pods_free_their_room(harness: SchedulerHarness) -> None:
    publish(harness, plan(3))
    harness.see(group(3))
    harness.session()
    answer(harness, "refused")
    assert harness.used_cpu() == 0


def test_a_created_pod_that_was_deleted_unseen_frees_its_room_once_later_pods_are_read(
    harness: SchedulerHarness,
) -> None:
    publish(harness, plan(1))
    harness.see(group(1))
    harness.session()
    answer(harness, "executed", created_version=9)
    harness.see(builders.make_pod("earlier", version=8))
    assert harness.used_cpu() == 1000
    harness.see(builders.make_pod("later", version=10))
    assert harness.used_cpu() == 0


@pytest.mark.parametrize("is_its_own", [True, False])
def test_a_deletion_that_is_read_frees_the_room_of_created_pods_up_to_its_version(
    harness: SchedulerHarness, *, is_its_own: bool
) -> None:
    """After a restart, compaction may have left nothing else of these pods."""
    publish(harness, plan(1))
    harness.see(group(1))
    (statement,) = harness.session().decisions
    decision = answer(harness, "executed", created_version=9)
    gone = created(statement.binds[0], decision.id, 9)
    other = builders.make_pod("other", version=10)
    harness.apply(*harness.log.lose(gone if is_its_own else other))
    assert harness.used_cpu() == 0


def republish(harness: SchedulerHarness) -> None:
    first = harness.statements[0]
    statement = envelope.decode(first)
    assert isinstance(statement, messages.StatementDecided)
    again = msgspec.structs.replace(statement, decision=first.id)
    harness.apply(harness.log.append(draft(topics.DECISIONS, GROUP_KEY, again)))


def pods_first(records: list[envelope.Record]) -> list[envelope.Record]:
    return sorted(records, key=lambda record: record.topic != topics.PODS)


@pytest.mark.parametrize("is_answered", [False, True], ids=["unanswered", "answered"])
@pytest.mark.parametrize("is_repeated", [False, True], ids=["once", "repeated"])
def test_the_room_of_a_deleted_planned_pod_does_not_depend_on_the_order_of_topics(
    harness: SchedulerHarness, *, is_answered: bool, is_repeated: bool
) -> None:
    """The outcome of a replaced publication decides nothing. A reader of the decision that finds
    the deletion only cannot know whether the newest publication may still create the pod, so no
    reader may conclude from the pod's snapshot that it may not."""
    publish(harness, plan(1))
    harness.see(group(1))
    (statement,) = harness.session().decisions
    decision = harness.statements[0]
    if is_repeated:
        republish(harness)
    if is_answered:
        answer(harness, "executed", created_version=9, at=0)
    pod = created(statement.binds[0], decision.id, 9)
    harness.see(pod)
    harness.lose(pod)
    expected = 0 if is_answered and not is_repeated else 1000
    assert harness.used_cpu() == expected
    other = SchedulerHarness(pods_first(harness.log.records))
    assert other.used_cpu() == expected
    compacted = SchedulerHarness(
        [it for it in harness.log.records if it.topic != topics.PODS or it.value is None]
    )
    assert compacted.used_cpu() == expected
    answered = {each.cache.unanswered() for each in (harness, other, compacted)}
    assert len(answered) == 1
    for each in (harness, other, compacted):
        each.log = harness.log
        answer(each, "refused")
        assert each.used_cpu() == 0
        assert each.cache.unanswered() == 0


def test_a_planned_pod_that_cannot_be_read_holds_its_room_until_it_can(
    harness: SchedulerHarness,
) -> None:
    publish(harness, plan(1))
    harness.see(group(1))
    (statement,) = harness.session().decisions
    decision = answer(harness, "executed", created_version=9)
    pod = created(statement.binds[0], decision.id, 9)
    harness.apply(harness.log.garble(topics.PODS, pod.metadata.key))
    harness.see(builders.make_pod("later", version=10))
    assert harness.cache.assumed.node_of(pod.metadata.key) == "n1"
    harness.lose(pod)
    assert harness.cache.assumed.node_of(pod.metadata.key) == ""
    assert harness.used_cpu() == 0


def test_the_version_of_an_unreadable_pod_counts_as_read(harness: SchedulerHarness) -> None:
    """Compaction may have left it as the only record with this version."""
    publish(harness, plan(1))
    harness.see(group(1))
    harness.session()
    answer(harness, "executed", created_version=9)
    unreadable = cluster.Unreadable(uid="x", resource_version="10", reason="too large", node="n9")
    harness.apply(harness.log.append(draft(topics.PODS, "default/other", unreadable)))
    assert harness.used_cpu() == 0


@pytest.mark.parametrize("is_pod_first", [True, False])
def test_a_copy_of_a_created_pod_without_a_node_does_not_keep_its_bind_open(
    harness: SchedulerHarness, *, is_pod_first: bool
) -> None:
    """Such as one that a user restores with all annotations: it needs a place of its own."""
    publish(harness, plan(1))
    harness.see(group(1))
    (statement,) = harness.session().decisions
    pod = created(statement.binds[0], harness.statements[0].id, 9)
    copy = created(
        msgspec.structs.replace(statement.binds[0], node=""), harness.statements[0].id, 12
    )
    records = [*harness.log.see(pod), *harness.log.lose(pod), *harness.log.see(copy)]
    if is_pod_first:
        harness.apply(*records)
    answer(harness, "executed", created_version=9)
    if not is_pod_first:
        harness.apply(*records)
    assert harness.used_cpu() == 0
    harness.see(group(1, version=13))
    (again,) = harness.session().decisions
    assert [bind.uid for bind in again.binds] == ["j-w-0-12"]


def test_a_pod_of_the_same_name_from_elsewhere_does_not_end_a_planned_bind(
    harness: SchedulerHarness,
) -> None:
    """A new leader of the controller may have created it before it read the decision."""
    publish(harness, plan(1))
    harness.see(group(1))
    (statement,) = harness.session().decisions
    unbound = created(msgspec.structs.replace(statement.binds[0], node=""), "", 5)
    harness.see(unbound)
    assert harness.used_cpu() == 1000
    assert harness.session().decisions == ()
    answer(harness, "refused")
    assert harness.used_cpu() == 0
    (again,) = harness.session().decisions
    assert [(bind.pod, bind.uid) for bind in again.binds] == [("j-w-0", "j-w-0-5")]


def test_the_node_of_an_open_planned_bind_takes_no_pods_while_its_plan_is_unknown(
    harness: SchedulerHarness,
) -> None:
    """After a restart the topic may have lost the plan; what the pod takes is then unknown."""
    publish(harness, plan(1))
    harness.see(group(1))
    harness.session()
    kept = [it for it in harness.log.records if it.topic != topics.BATCH_PLANS]
    restarted = SchedulerHarness(kept)
    restarted.see(builders.make_pod_group("h"), builders.make_pod("h-w-0", "h"))
    assert restarted.session().decisions == ()
    restarted.log = harness.log
    restarted.apply(*(it for it in harness.log.records if it.topic == topics.BATCH_PLANS))
    assert restarted.used_cpu() == 1000


def test_an_unreadable_plan_is_no_plan(harness: SchedulerHarness) -> None:
    publish(harness, plan(1))
    harness.apply(harness.log.garble(topics.BATCH_PLANS, GROUP_KEY))
    harness.see(group(1))
    (statement,) = harness.session().decisions
    assert statement.binds == ()
    assert harness.parked
