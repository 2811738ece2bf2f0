"""Rules of what ``strom job wait`` says about a job that failed or stays pending."""

from datetime import timedelta
from typing import Any

import pytest

from stromboli.cli import options
from stromboli.cli.commands.jobs import job_wait
from stromboli.cli.errors import TimedOutError
from stromboli.shared.api import batch
from stromboli.shared.api.views.task_history import TaskAttempt
from stromboli.testkit import builders


def attempt(index: int, state: str = "Failed", **facts: Any) -> TaskAttempt:
    return TaskAttempt(
        task="w", index=index, attempt=1, pod=f"a-w-{index}", pod_uid="u", state=state, **facts
    )


def test_a_failed_job_names_its_reason_and_the_pods_that_failed_first() -> None:
    job = builders.make_job("a")
    state = batch.JobState(phase="Failed", reason="PodFailed", message="maxRetry reached")
    failed = batch.Job(metadata=job.metadata, spec=job.spec, status=batch.JobStatus(state=state))
    attempts = [
        attempt(0, "Succeeded", exit_code=0),
        attempt(2, exit_code=1, ended_at=builders.NOON + timedelta(seconds=5)),
        attempt(1, exit_code=137, reason="OOMKilled", node="n1", ended_at=builders.NOON),
        *(attempt(n, ended_at=builders.NOON + timedelta(hours=1)) for n in range(3, 6)),
    ]
    assert job_wait.why_it_failed(failed, attempts) == [
        "  reason: maxRetry reached",
        "  pod a-w-1 on node n1: OOMKilled, exit code 137, attempt 1",
        "  pod a-w-2: exit code 1, attempt 1",
        "  pod a-w-3: attempt 1",
        "  and 2 more: strom job history a",
        "next: strom job logs a --task w --index 1 --attempt 1 -n default",
    ]


def test_a_job_that_exceeded_its_time_limit_is_described_as_in_other_commands() -> None:
    job = builders.make_job("a")
    state = batch.JobState(
        phase="Failed", reason="DeadlineExceeded", message="activeDeadlineSeconds 2 has passed"
    )
    failed = batch.Job(metadata=job.metadata, spec=job.spec, status=batch.JobStatus(state=state))
    assert job_wait.why_it_failed(failed, []) == ["  reason: the time limit has passed"]


def test_a_job_without_failed_pods_shows_only_what_its_status_has() -> None:
    assert job_wait.why_it_failed(builders.make_job("a"), [attempt(0, "Gone")]) == []


def test_wait_prints_the_reason_of_a_failure_on_stderr(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a")
    uid = api_server.job("a").metadata.uid
    api_server.set_status("a", "Failed", failed=1)
    api_server.tell_tasks("default/a", uid, "Pending", "Running", "Failed", attempt=1)
    waited = strom("job", "wait", "a")
    assert (waited.exit_code, waited.stdout) == (1, "default/a: Failed (1 failed)\n")
    assert "  pod p1: attempt 1\n" in waited.stderr


@pytest.mark.parametrize(("phase", "explained"), [("Pending", 1), ("Running", 0)])
def test_a_wait_explains_a_job_that_stays_pending_once(
    api_server: Any, strom: Any, phase: str, explained: int
) -> None:
    """A gang that can never fit is otherwise awaited indefinitely, without a reason."""
    strom("job", "run", "a")
    api_server.set_status("a", phase)
    explanations: list[None] = []
    with (
        options.client(api_server.url) as client,
        pytest.raises(TimedOutError, match=f"still {phase} after 0.2 s"),
    ):
        client.wait(
            "default",
            "a",
            frozenset({"Completed"}),
            0.2,
            lambda job: None,
            lambda: explanations.append(None),
            explain_after_s=0.05,
        )
    assert len(explanations) == explained
