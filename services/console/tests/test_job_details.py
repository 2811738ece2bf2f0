"""A job in full: why it is pending with numbers, its attempts as bars, its events."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from stromboli.client.responses import Explanation, KubernetesEvent
from stromboli.console.core import job_details
from stromboli.shared.api.views.task_history import TaskAttempt, TaskHistory
from stromboli.shared.messages.scheduling import NodeRejection, PodGroupExplained, Shortage

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
UID = "6f065fd4-b1da-4776-893a-409237507695"


def explained(**fields: object) -> PodGroupExplained:
    known = {
        "pod_group": f"vision/train-{UID}",
        "pod_group_uid": "u",
        "queue": "research",
        "phase": "Pending",
        "tier": "resources",
        "message": "2/2 tasks in gang unschedulable",
        "min_member": 2,
        "members": 2,
        "running": 0,
        "pending": 2,
        "placeable": 1,
    }
    return PodGroupExplained(**{**known, **fields})  # type: ignore[arg-type]  # known fields


def explanation(found: PodGroupExplained | None, **fields: object) -> Explanation:
    known = {
        "job": "vision/train",
        "phase": "Pending",
        "pod_group": f"vision/train-{UID}",
        "explained": found,
        "in_front": (f"vision/first-{UID}",),
    }
    return Explanation(**{**known, **fields})  # type: ignore[arg-type]  # known fields


def test_a_pending_job_shows_position_gang_and_shortages() -> None:
    gpus = Shortage(
        resource="nvidia.com/gpu",
        needed=8000,
        free=3000,
        total=12000,
        allocated=6000,
        deserved=4000,
    )
    refused = NodeRejection(nodes=2, reason="taint maintenance")
    pending = job_details.pending(
        explanation(explained(shortages=(gpus,), refusals=(refused,))), NOW
    )
    assert pending is not None
    assert (pending.position, pending.in_front) == (2, ("vision/first",))
    assert pending.gang == "2 pods must start together: 0 running, 1 more can be placed now"
    (row,) = pending.shortages
    assert (row.resource, row.needed, row.free, row.missing) == ("GPU", "8", "3", "short by 5")
    assert row.queue == "allocated 6, deserved 4"
    assert pending.refusals == ((2, "taint maintenance"),)


def test_the_position_of_a_job_may_be_unknown() -> None:
    pending = job_details.pending(explanation(explained(), in_front=None), NOW)
    assert pending is not None
    assert pending.position == 0


def test_a_running_job_is_not_pending() -> None:
    assert job_details.pending(explanation(None, phase="Running"), NOW) is None


def test_a_job_without_pods_shows_what_the_controller_reports() -> None:
    pending = job_details.pending(explanation(None, held="FailedCreate: quota exceeded"), NOW)
    assert pending is not None
    assert pending.messages == ("FailedCreate: quota exceeded",)


def attempt(number: int, **times: int) -> TaskAttempt:
    moments = {name: NOW + timedelta(seconds=second) for name, second in times.items()}
    made = TaskAttempt(
        task="worker", index=0, attempt=number, pod="p", pod_uid="u", state="Running"
    )
    return msgspec.structs.replace(made, **moments)


def test_bars_of_attempts_share_one_scale() -> None:
    tasks = (
        attempt(1, created_at=0, bound_at=20, running_at=40, ended_at=60),
        attempt(2, created_at=60, bound_at=80),
    )
    history = TaskHistory(job="vision/train", uid="u", tasks=tasks)
    timeline = job_details.timeline(history, NOW + timedelta(seconds=100))
    first, second = timeline.rows
    assert (timeline.first, timeline.last) == (NOW, NOW + timedelta(seconds=100))
    assert (first.start, first.bound, first.running, first.end) == (0, 20, 40, 60)
    assert (second.start, second.bound, second.running, second.end) == (60, 80, 100, 100)
    assert (first.ran, second.ran, timeline.more) == ("20s", "", 0)


def test_a_page_shows_a_limited_number_of_attempts() -> None:
    tasks = tuple(attempt(1) for _ in range(job_details.MOST_ATTEMPTS + 7))
    timeline = job_details.timeline(TaskHistory(job="j", uid="u", tasks=tasks), NOW)
    assert (len(timeline.rows), timeline.more) == (job_details.MOST_ATTEMPTS, 7)


def test_the_newest_event_is_first_and_one_without_a_time_last() -> None:
    kubernetes_events = [
        KubernetesEvent(reason="none"),
        KubernetesEvent(reason="old", last_timestamp=NOW - timedelta(hours=1)),
        KubernetesEvent(reason="new", last_timestamp=NOW),
    ]
    assert [it.reason for it in job_details.events(kubernetes_events)] == ["new", "old", "none"]


@pytest.mark.parametrize(
    ("phase", "names"),
    [
        ("Running", ("suspend", "restart", "delete")),
        ("Aborted", ("resume", "delete")),
        ("Failed", ("delete",)),
        ("Terminating", ("delete",)),
    ],
)
def test_a_page_offers_the_actions_of_the_phase(phase: str, names: tuple[str, ...]) -> None:
    assert job_details.actions(phase) == names
    assert set(names) <= set(job_details.CONSEQUENCES)
