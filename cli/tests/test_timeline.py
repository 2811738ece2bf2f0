"""Rules of ``strom job describe``: what happened to a job, and when."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from stromboli.cli.render import pod_status, timeline
from stromboli.client import responses
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds, meta
from stromboli.shared.api.views.task_history import TaskAttempt

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def job(**status: Any) -> batch.Job:
    metadata = meta.ObjectMeta(name="a", creation_timestamp=START, annotations={keys.USER: "ada"})
    return batch.Job(metadata=metadata, status=batch.JobStatus(**status))


def pod(index: int, made: float, *, attempt: int = 1, **status: Any) -> pod_status.Pod:
    document = {
        "metadata": {
            "name": f"a-w-{index}",
            "uid": "u",
            "creationTimestamp": at(made).isoformat(),
            "annotations": {keys.ATTEMPT: str(attempt)},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
        "status": status,
    }
    return pod_status.decode(msgspec.json.encode(document))


def attempt(number: int, **more: Any) -> TaskAttempt:
    return TaskAttempt(
        **{"task": "w", "index": 0, "attempt": number, "pod": "a-w-0", "pod_uid": "gone", **more}
    )


def event(reason: str, seconds: float, **more: Any) -> responses.KubernetesEvent:
    return responses.KubernetesEvent(
        reason=reason, message="text", last_timestamp=at(seconds), count=1, **more
    )


def news(*arguments: Any) -> list[tuple[float, str, str]]:
    return [
        ((entry.at - START).total_seconds(), entry.who, entry.what)
        for entry in timeline.timeline_entries(*arguments)
    ]


def test_phases_pods_and_events_are_in_order_of_time() -> None:
    phases = (
        batch.JobCondition(status="Pending", last_transition_time=at(1)),
        batch.JobCondition(status="Running", last_transition_time=at(6)),
    )
    state = batch.JobState(
        phase="Failed", reason="Why", message="it did", last_transition_time=at(20)
    )
    seen = pod(
        0,
        2,
        conditions=[
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(4).isoformat()}
        ],
        containerStatuses=[
            {
                "name": "c",
                "state": {
                    "terminated": {
                        "exitCode": 137,
                        "startedAt": at(7).isoformat(),
                        "reason": "OOMKilled",
                        "finishedAt": at(19).isoformat(),
                    }
                },
                "lastState": {"running": {"startedAt": at(5).isoformat()}},
            }
        ],
    )
    assert news(job(conditions=phases, state=state), [seen], [event("PodGroupPending", 3)]) == [
        (0, "job", "submitted by ada"),
        (1, "job", "Pending"),
        (2, "w-0", "created"),
        (3, "job", "PodGroupPending: text"),
        (4, "w-0", "bound to n1"),
        (5, "w-0", "started"),
        (6, "job", "Running"),
        (7, "w-0", "started"),
        (19, "w-0", "exited 137 (OOMKilled)"),
        (20, "job", "Failed (it did)"),
    ]


def test_entries_of_one_second_are_in_order_of_their_causes() -> None:
    """Events, which have whole seconds only, as they were written."""
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(0).isoformat()}
    events = [
        event(reason, 0, metadata=meta.ObjectMeta(resource_version=version))
        for reason, version in (("Failed", "12"), ("Running", "9"), ("Pending", "7"))
    ]
    found = news(job(), [pod(0, 0.4, conditions=[scheduled])], events)
    assert [what.partition(":")[0] for _, _, what in found] == [
        "submitted by ada", "created", "bound to n1", "Pending", "Running", "Failed",
    ]  # fmt: skip


def test_pods_of_the_last_attempt_follow_their_restart() -> None:
    """All within one second, in which there were other pods before."""
    about = responses.InvolvedObject(kind="Job", name="a")
    phases = ("Pending", "Running", "Restarting", "Pending", "Running", "Failed")
    events = [
        event(
            reason,
            0,
            metadata=meta.ObjectMeta(resource_version=str(version)),
            involved_object=about,
        )
        for version, reason in enumerate(phases, start=7)
    ]
    ended = {"exitCode": 3, "finishedAt": at(0).isoformat()}
    last = pod(0, 0, containerStatuses=[{"name": "c", "state": {"terminated": ended}}])
    found = [what.partition(":")[0] for _, _, what in news(job(), [last], events)]
    assert found == [
        "submitted by ada", "Pending", "Running", "Restarting", "Pending",
        "created", "exited 3", "Running", "Failed",
    ]  # fmt: skip


def test_earlier_attempts_follow_their_cause() -> None:
    """Pods of earlier attempts are deleted; only the history has them."""
    about = responses.InvolvedObject(kind="Job", name="a")
    events = [
        event(
            reason,
            0,
            event_time=at(within),
            metadata=meta.ObjectMeta(resource_version=str(version)),
            involved_object=about,
        )
        for version, (reason, within) in enumerate(
            (("Pending", 0.1), ("Restarting", 0.5), ("Pending", 0.6)), start=7
        )
    ]
    failed = attempt(1, state="Failed", reason="Error", exit_code=3, node="n1")
    first = msgspec.structs.replace(
        failed, created_at=at(0.2), bound_at=at(0.3), running_at=at(0.3), ended_at=at(0.4)
    )
    last = [pod(0, 0, attempt=2)]
    found = [
        (who, what.partition(":")[0])
        for _, who, what in news(job(), last, events, timeline.attempts_without_pod([first], last))
    ]
    assert found == [
        ("job", "submitted by ada"),
        ("job", "Pending"),
        ("w-0", "created"),
        ("w-0", "bound to n1"),
        ("w-0", "started"),
        ("w-0", "exited 3 (Error)"),
        ("job", "Restarting"),
        ("job", "Pending"),
        ("w-0", "created, attempt 2"),
    ]


def test_failed_attempts_are_shown_after_their_pods_are_deleted() -> None:
    """An array has thousands that succeeded, and strom job history has them all."""
    there = pod(0, 0)
    same = attempt(2, state="Failed", pod_uid=there.metadata.uid)
    succeeded, ended = attempt(1, state="Succeeded"), attempt(1, state="Gone", reason="AbortJob")
    assert timeline.attempts_without_pod([same, succeeded, ended], [there]) == [ended]


def test_a_pod_that_never_started_is_shown_with_the_reason() -> None:
    refused = pod(
        0, 1, phase="Failed", reason="NotSupported", message="no way", startTime=at(2).isoformat()
    )
    assert news(job(), [refused], [])[-1] == (2, "w-0", "failed (NotSupported: no way)")


def test_simultaneous_entries_of_many_pods_are_one_line() -> None:
    pods = [pod(index, 1 + index / 100) for index in range(6)]
    assert news(job(), pods[:4], [])[1:] == [(1, "w-0, w-1, w-2, w-3", "created")]
    assert news(job(), pods, [])[1:] == [(1, "w-0, w-1, w-2 and 3 more", "created")]


def test_events_of_one_second_are_in_order() -> None:
    """Kubernetes' own times are whole seconds; Stromboli adds exact times."""
    second = event("Second", 3, event_time=at(3.2))
    first = event("First", 3, event_time=at(3.1))
    assert news(job(), [], [second, first])[1:] == [
        (3.1, "job", "First: text"),
        (3.2, "job", "Second: text"),
    ]


def test_an_event_has_its_count_and_pod() -> None:
    repeated = msgspec.structs.replace(
        event("Failed", 60, involved_object=responses.InvolvedObject(kind="Pod", name="a-w-3")),
        count=4,
        first_timestamp=at(30),
    )
    assert news(job(), [], [repeated])[1:] == [(60, "w-3", "Failed: text (4 times in 30s)")]


def test_events_of_one_second_keep_the_order_of_their_creation() -> None:
    later = event("Completed", 9, metadata=meta.ObjectMeta(resource_version="11"))
    sooner = event("Completing", 9, metadata=meta.ObjectMeta(resource_version="9"))
    seen_of = [what for _, _, what in news(job(), [], [later, sooner])[-2:]]
    assert [what.partition(":")[0] for what in seen_of] == ["Completing", "Completed"]


def test_a_repeated_phase_is_shown_once() -> None:
    phase = batch.JobCondition(status="Running", last_transition_time=at(6))
    state = batch.JobState(phase="Running", last_transition_time=at(6))
    assert news(job(conditions=(phase,), state=state), [], []) == [
        (0, "job", "submitted by ada"),
        (6, "job", "Running"),
    ]


def test_a_phase_with_an_event_is_shown_once() -> None:
    phase = batch.JobCondition(status="Running", last_transition_time=at(6))
    state = batch.JobState(phase="Running", last_transition_time=at(6))
    tells = event("Running", 6, involved_object=responses.InvolvedObject(kind="Job", name="a"))
    assert news(job(conditions=(phase,), state=state), [], [tells])[1:] == [
        (6, "job", "Running: text")
    ]


def test_describe_shows_the_job_its_pods_and_the_timeline(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a", "--replicas", "2")
    api_server.start_pod("a", 0, b"")
    uid = api_server.job("a").metadata.uid
    involved = {"kind": "Job", "name": "a", "namespace": "default", "uid": uid}
    news = {"reason": "Told", "message": "it is", "involvedObject": involved}
    api_server.create(kinds.EVENTS, {"metadata": {"name": "a.1", "namespace": "default"}, **news})
    shown = strom("job", "describe", "a")
    assert (shown.exit_code, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert "gang      all 2 pods start together" in lines
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("TIME")) :]
    assert any("submitted by" in line for line in table)
    assert any(line.endswith("Told: it is") for line in table)
    assert any(line.split()[-2:] == ["w-0", "created"] for line in table)
    api_server.tell_tasks("default/a", uid, "Pending", "Failed", attempt=1)
    shown = strom("job", "describe", "a").stdout
    assert any(line.endswith(" ended") for line in shown.splitlines())
    assert strom("job", "describe", "absent").exit_code == 1


def test_an_attempt_that_ends_in_the_second_in_which_the_next_begins_comes_first() -> None:
    first = attempt(1, state="Failed", created_at=at(1.1), ended_at=at(1.4))
    second = attempt(2, state="Failed", created_at=at(1.5), ended_at=at(1.9))
    shown = [what for _, _, what in news(job(), [], [], [second, first])[1:]]
    steps = [what for what in shown if what.startswith(("created", "exited", "ended"))]
    assert [what.endswith("attempt 2") for what in steps] == [False, False, True, True]
