"""Deleted pods of which nothing was published: which of them have a result that still counts."""

from typing import Any

import msgspec
import pytest

from stromboli.controller.core.store import event_history
from stromboli.shared import keys
from stromboli.shared.api import batch, core
from stromboli.shared.messages import batch as messages
from stromboli.testkit import builders

JOB = builders.make_job("j1")
KEY = JOB.metadata.key


def ended(
    phase: str = "Succeeded",
    owner: batch.Job = JOB,
    attempt: int = 2,
    index: int = 3,
    evicted_at: str = "",
) -> core.Pod:
    """A pod of task t."""
    annotations = {keys.TASK_SPEC: "t", keys.TASK_INDEX: str(index), keys.ATTEMPT: str(attempt)}
    if evicted_at:
        annotations[keys.EVICTED_AT] = evicted_at
    return builders.make_pod(
        "j1-t-3", annotations=annotations, phase=phase, node="n1", owner=owner, version=7
    )


def published(phase: str = "Running", attempt: int = 1) -> event_history.EventHistory:
    """The history of a job of which an attempt of index 3 is deleted, with its events."""
    history = event_history.EventHistory()
    history.finish_loading()
    of_job: dict[str, Any] = {"job": KEY, "uid": JOB.metadata.uid, "at": builders.NOON}
    of_pod: dict[str, Any] = {"task": "t", "index": 3, "pod": "j1-t-3", "pod_uid": "earlier"}
    for after in ("Running", "Gone"):
        history.observe(
            messages.TaskChanged(**of_job, **of_pod, before="", after=after, attempt=attempt)
        )
    history.observe(messages.JobPhaseChanged(**of_job, queue="q", before="", after=phase))
    return history


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_result_of_a_deleted_pod_counts_without_an_event_about_it(phase: str) -> None:
    """And its attempt is one of its index, so that the next one has a later number."""
    history, pod = published(), ended(phase)
    history.note_departure(KEY, pod)
    (departed,) = history.departed(JOB)
    assert (departed.metadata.uid, departed.status.phase) == (pod.metadata.uid, phase)
    assert list(history.pods_of_job(JOB)) == [(pod.metadata.uid, "j1-t-3")]
    assert history.attempts(JOB, "t", 3) == 2


@pytest.mark.parametrize("index", [2, 3, 4])
def test_the_first_attempt_of_an_index_counts_whichever_others_have_events(index: int) -> None:
    history = published(attempt=0)
    history.note_departure(KEY, ended(attempt=1, index=index))
    assert len(list(history.departed(JOB))) == 1
    assert history.attempts(JOB, "t", index) == 1


def test_of_pods_deleted_while_the_events_are_read_the_last_ones_are_kept() -> None:
    """Their number is limited: a standby reads both topics for months."""
    history = event_history.EventHistory()
    pod = ended()
    for number in range(event_history.MOST_DEPARTURES + 1):
        metadata = msgspec.structs.replace(pod.metadata, uid=f"uid-{number}")
        history.note_departure(KEY, msgspec.structs.replace(pod, metadata=metadata))
    change = messages.JobPhaseChanged(
        job=KEY, uid=JOB.metadata.uid, queue="q", before="", after="Running", at=builders.NOON
    )
    history.load(change)
    history.finish_loading()
    # Only the first departure of an attempt is recorded: that of the oldest pod that is kept.
    assert [pod.metadata.uid for pod in history.departed(JOB)] == ["uid-1"]


@pytest.mark.parametrize(
    ("history", "pod"),
    [
        pytest.param(published(attempt=2), ended(), id="an attempt with events"),
        pytest.param(published(attempt=3), ended(), id="an earlier attempt"),
        pytest.param(published("Completed"), ended(), id="of a finished job"),
        pytest.param(published(), ended("Running"), id="not ended"),
        pytest.param(published(), ended(evicted_at=builders.NOON.isoformat()), id="evicted"),
        pytest.param(
            published(),
            ended(
                owner=msgspec.structs.replace(
                    JOB, metadata=msgspec.structs.replace(JOB.metadata, uid="another")
                )
            ),
            id="of an earlier job of the name",
        ),
    ],
)
def test_other_deleted_pods_are_not_counted_again(
    history: event_history.EventHistory, pod: core.Pod
) -> None:
    """A new controller reads the pods' topic from its beginning: it has pods whose events were
    published long ago."""
    history.note_departure(KEY, pod)
    assert not list(history.departed(JOB))
    assert not list(history.pods_of_job(JOB))


def test_a_deleted_pod_of_an_unknown_job_is_ignored() -> None:
    history = event_history.EventHistory()
    history.finish_loading()
    history.note_departure(KEY, ended())
    assert not history.jobs
