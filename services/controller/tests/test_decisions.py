"""Outcomes of decisions before and after requests to the API server."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.controller.tests.support.patches import json_patch
from stromboli.controller.core import termination_causes
from stromboli.controller.core.decisions import decisions
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.shared import errors, keys, topics
from stromboli.shared.api import batch, core, kinds, meta
from stromboli.shared.api import scheduling as api_scheduling
from stromboli.shared.messages import scheduling
from stromboli.testkit.builders import (
    NOON,
    make_job,
    make_pod,
    make_pod_group,
    make_record,
    snapshot_of,
    undecodable_record,
)

DECISION = "scheduler/3/7"
JOB = make_job(status=batch.JobStatus(state=batch.JobState(phase="Pending")))


def cache(
    *objects: core.Pod | batch.Job | api_scheduling.PodGroup,
) -> controller_cache.ControllerCache:
    folded = controller_cache.ControllerCache(["volcano"], event_history.EventHistory())
    for each in objects:
        folded.apply(make_record(snapshot_of(each)))
    return folded


def bind_of(pod: core.Pod) -> scheduling.Bind:
    return scheduling.Bind(
        namespace="default", pod=pod.metadata.name, uid=pod.metadata.uid, node="n1"
    )


def eviction_of(pod: core.Pod) -> scheduling.Eviction:
    return scheduling.Eviction(
        namespace="default", pod=pod.metadata.name, uid=pod.metadata.uid, reason="reclaim"
    )


def with_status(job: batch.Job, phase: str, version: int = 0) -> batch.Job:
    status = batch.JobStatus(state=batch.JobState(phase=phase), version=version)
    return msgspec.structs.replace(job, status=status)


def test_a_pod_missing_in_the_cache_is_bound() -> None:
    """The scheduler's cache may be newer than the controller's."""
    assert decisions.before_bind(cache(), bind_of(make_pod()), DECISION) is None


def test_of_a_pod_of_another_uid_the_api_server_is_asked() -> None:
    """It may be the previous pod of this name: the scheduler's cache may be newer than the
    controller's.
    """
    before, now = make_pod(node="n1", deleting=NOON), make_pod(generation=2)
    assert decisions.before_bind(cache(before), bind_of(now), DECISION) is None
    assert decisions.before_eviction(cache(before), eviction_of(now)) is None


def test_a_living_pod_of_a_living_job_is_bound() -> None:
    pod = make_pod(owner=JOB)
    assert decisions.before_bind(cache(JOB, pod), bind_of(pod), DECISION) is None


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (make_pod(deleting=NOON), "PodGone"),
        (make_pod(node="n2"), "AlreadyBound"),
        (make_pod(node="n1", decision="scheduler/3/6"), "AlreadyBound"),
    ],
    ids=["going", "bound by others", "bound by another decision"],
)
def test_a_bind_is_refused_when_the_pod_is_not_free(pod: core.Pod, reason: str) -> None:
    answer = decisions.before_bind(cache(pod), bind_of(pod), DECISION)
    assert answer is not None
    assert (answer.result, answer.reason) == ("refused", reason)


def test_a_pod_bound_by_this_very_decision_is_executed() -> None:
    pod = make_pod(node="n1", decision=DECISION)
    assert decisions.before_bind(cache(pod), bind_of(pod), DECISION) == decisions.EXECUTED
    assert decisions.after_bind_refused(pod, bind_of(pod), DECISION) == decisions.EXECUTED


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (None, "JobGone"),
        (make_job(generation=2), "JobGone"),
        (make_job(deleting=NOON), "JobGone"),
        (with_status(JOB, "Aborting"), "JobStopping"),
        (with_status(JOB, "Pending", version=1), "JobRestarted"),
    ],
    ids=["no job", "another job of the name", "going", "stopping", "a later version"],
)
def test_a_bind_is_refused_when_the_job_no_longer_wants_the_pod(
    job: batch.Job | None, reason: str
) -> None:
    pod = make_pod(owner=JOB)
    folded = cache(pod) if job is None else cache(pod, job)
    answer = decisions.before_bind(folded, bind_of(pod), DECISION)
    assert answer is not None
    assert (answer.result, answer.reason) == ("refused", reason)


def test_a_bind_for_a_job_that_cannot_be_read_is_refused() -> None:
    pod = make_pod(owner=JOB)
    folded = cache(pod)
    folded.apply(undecodable_record(topics.JOBS, JOB.metadata.key))
    answer = decisions.before_bind(folded, bind_of(pod), DECISION)
    assert answer is not None
    assert answer.reason == "JobUnknown"


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (None, "PodGone"),
        (make_pod(generation=2), "PodGone"),
        (make_pod(deleting=NOON), "PodGone"),
        (make_pod(node="n2"), "AlreadyBound"),
    ],
)
def test_a_refused_bind_has_its_reason(pod: core.Pod | None, reason: str) -> None:
    answer = decisions.after_bind_refused(pod, bind_of(make_pod()), DECISION)
    assert (answer.result, answer.reason) == ("refused", reason)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod(node="n1", phase="Running"), None),
        (make_pod(node="n1", phase="Succeeded"), "refused"),
        (make_pod(node="n1", phase="Failed"), "refused"),
        (make_pod(node="n1", deleting=NOON), "executed"),
    ],
)
def test_an_eviction_spares_finished_pods_and_counts_going_ones(
    pod: core.Pod, expected: str | None
) -> None:
    answer = decisions.before_eviction(cache(pod), eviction_of(pod))
    assert (None if answer is None else answer.result) == expected
    assert decisions.has_ended(cache(pod), eviction_of(pod)) == (expected is not None)


def test_a_pod_under_notice_has_ended_when_another_has_its_name() -> None:
    pod = make_pod(node="n1", phase="Running")
    assert decisions.has_ended(cache(make_pod(generation=2)), eviction_of(pod))
    assert not decisions.has_ended(cache(), eviction_of(pod)), "it may only be unreadable"


def test_a_refusal_names_its_reason() -> None:
    answer = decisions.refusal(errors.ForbiddenError("bind p1", "no right to create bindings"))
    assert (answer.reason, answer.message) == ("Forbidden", "no right to create bindings")


def test_the_ledger_reports_from_where_a_restart_has_to_read() -> None:
    ledger = decisions.OutcomeOffsets(10, {})
    assert ledger.outcomes_from(5) == 11, "nothing answered: everything is still to come"
    ledger.answered(6, 11)
    ledger.answered(7, 12)
    assert ledger.outcomes_from(5) == 11, "6 was answered before 5"
    ledger.answered(5, 13)
    assert ledger.outcomes_from(8) == 14


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60)), max_size=40),
    st.lists(st.integers(0, 31), max_size=10).map(sorted),
)
def test_outcomes_are_read_from_the_first_outcome_of_a_decision_that_may_be_read_again(
    answers: list[tuple[int, int]], looks: list[int]
) -> None:
    """Whatever the order of outcomes; of two outcomes of a publication, the later one counts."""
    ledger, known, end = decisions.OutcomeOffsets(10, {}), dict[int, int](), 11
    for number, (decision, gap) in enumerate(answers):
        known[decision] = 11 + number + gap
        end = max(end, known[decision] + 1)
        ledger.answered(decision, known[decision])
    for unanswered_from in looks:
        wanted = [offset for decision, offset in known.items() if decision >= unanswered_from]
        assert ledger.outcomes_from(unanswered_from) == min(wanted, default=end)


def noticed(pod: core.Pod, at: str) -> core.Pod:
    notes = {**(pod.metadata.annotations or {}), keys.EVICTED_AT: at}
    metadata = msgspec.structs.replace(pod.metadata, annotations=notes)
    return msgspec.structs.replace(pod, metadata=metadata)


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [(None, 60), ("2026-01-01T12:00:10+00:00", 10), ("2027-01-01T00:00:00Z", 60), ("soon", 60)],
)
def test_a_pod_ends_at_the_announced_time_and_never_after_the_notice(
    sent: str | None, seconds: int
) -> None:
    """Users may edit their pods, but cannot delay an eviction."""
    pod = make_pod() if sent is None else noticed(make_pod(), sent)
    eviction = msgspec.structs.replace(eviction_of(pod), notice_s=60.0)
    assert decisions.due(pod, eviction, NOON) == NOON + timedelta(seconds=seconds)


def test_a_pod_is_reported_on_its_end_once_by_annotation_and_condition() -> None:
    pod = make_pod()
    eviction = msgspec.structs.replace(eviction_of(pod), notice_s=60.0)
    first = decisions.notices(pod, eviction, "evicted", NOON, NOON)
    assert [it.subresource for it in first] == ["", "status"]
    assert b"2026-01-01T12:00:00+00:00" in first[0].patch
    assert b"DisruptionTarget" in first[1].patch
    target = core.Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    sent = msgspec.structs.replace(
        noticed(pod, NOON.isoformat()), status=core.PodStatus(conditions=(target,))
    )
    assert decisions.notices(sent, eviction, "evicted", NOON, NOON) == ()


@pytest.mark.parametrize(("status", "reason"), [("False", ""), ("True", "EvictionByEvictionAPI")])
def test_the_mark_of_an_eviction_that_did_not_happen_is_replaced(status: str, reason: str) -> None:
    """Otherwise the pod would count as deleted by a user, and policies for Preempted would not
    apply."""
    ready = core.Condition(type="Ready", status="True")
    stale = core.Condition(type="DisruptionTarget", status=status, reason=reason)
    pod = msgspec.structs.replace(make_pod(), status=core.PodStatus(conditions=(ready, stale)))
    (mark,) = decisions.notices(pod, eviction_of(pod), "evicted", NOON, NOON)
    body = json_patch(
        msgspec.json.decode(msgspec.json.encode(pod)), msgspec.json.decode(mark.patch)
    )
    after = kinds.PODS.decode(msgspec.json.encode(body))
    assert [each.type for each in after.status.conditions] == ["Ready", "DisruptionTarget"]
    assert termination_causes.of(after) == "Preempted"
    assert decisions.notices(after, eviction_of(pod), "evicted", NOON, NOON) == ()


def test_a_pod_that_ends_at_once_is_marked_and_has_no_grace_period() -> None:
    pod = make_pod()
    (mark,) = decisions.notices(pod, eviction_of(pod), "evicted", NOON, NOON)
    assert (mark.subresource, b"it ends at" in mark.patch) == ("status", False)
    assert b"PreemptionByScheduler" in mark.patch


@pytest.mark.parametrize(
    ("action", "namespace", "cause"),
    [
        ("reclaim", "default", "reclaimed by queue research for job default/urgent"),
        ("preempt", "default", "preempted by job default/urgent of queue research"),
        ("reclaim", "other", "reclaimed by queue research for a job in another namespace"),
        ("preempt", "other", "preempted by a job in another namespace of queue research"),
        ("shuffle", "default", "evicted (shuffle)"),
    ],
)
def test_an_eviction_names_the_job_and_the_queue_that_get_the_room(
    action: str, namespace: str, cause: str
) -> None:
    """A job of another namespace is not named: its name is not for every user."""
    owner = meta.OwnerReference(
        api_version="batch.volcano.sh/v1alpha1", kind="Job", name="urgent", uid="u", controller=True
    )
    group = make_pod_group("urgent-u", namespace=namespace, queue="research")
    metadata = msgspec.structs.replace(group.metadata, owner_references=(owner,))
    group = msgspec.structs.replace(group, metadata=metadata)
    victim = msgspec.structs.replace(eviction_of(make_pod()), reason=action)
    assert decisions.eviction_cause(cache(group), victim, group.metadata.key) == cause
    assert decisions.eviction_cause(cache(), victim, group.metadata.key) == f"evicted ({action})"
