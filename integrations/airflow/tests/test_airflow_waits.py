"""The waits for jobs of process nodes, without Airflow."""

import asyncio
import time
from collections.abc import Callable

import pytest

from stromboli.airflow import outcomes, tracking
from stromboli.client import AsyncClient, Client, job, phases
from stromboli.shared.api import batch

pytestmark = pytest.mark.timeout(600)
DEADLINE_S = 300


async def opened(server: str) -> AsyncClient:
    return AsyncClient(server)


def waited(server: str, awaited: outcomes.Awaited) -> outcomes.Outcome:
    return asyncio.run(outcomes.outcome(awaited, lambda: opened(server), lambda text: None))


def awaited(
    stored: batch.Job, *, start_by: float | None = None, end_by: float | None = None
) -> outcomes.Awaited:
    metadata = stored.metadata
    return outcomes.Awaited(
        namespace="default",
        name=metadata.name,
        uid=metadata.uid,
        start_by=start_by,
        end_by=end_by,
    )


def test_a_job_is_waited_for_to_its_end(server: str, client: Client) -> None:
    stored = client.submit(job("waited", image="busybox", command=["true"]))
    outcome = waited(server, awaited(stored))
    assert outcome == outcomes.Outcome(result=outcomes.ENDED, phase="Completed")


def test_a_job_that_does_not_start_in_time_has_the_reason_of_the_scheduler(
    server: str, client: Client
) -> None:
    large = job("too-large", image="busybox", requests={"cpu": "1000"})
    stored = client.submit(large)
    outcome = waited(server, awaited(stored, start_by=time.time() + 20))
    assert outcome.result == outcomes.NOT_STARTED
    assert "cpu" in outcome.reason
    client.delete("too-large")


def test_a_deadline_that_passed_unobserved_is_no_reason_to_end_a_started_job(
    server: str, client: Client
) -> None:
    """A triggerer that was down finds the job completed, not late."""
    stored = client.submit(job("unobserved", image="busybox", command=["true"]))
    client.wait("unobserved", timeout_s=DEADLINE_S)
    outcome = waited(server, awaited(stored, start_by=0, end_by=0))
    assert outcome.result == outcomes.ENDED


def test_a_job_that_does_not_exist_is_gone(server: str, client: Client) -> None:
    outcome = waited(server, outcomes.Awaited(namespace="default", name="no-such-job"))
    assert outcome.result == outcomes.GONE


def test_the_watch_of_an_executor_reports_the_end_of_its_jobs(server: str, client: Client) -> None:
    tracked: tracking.TrackedJobs[str] = tracking.TrackedJobs()
    messages: list[str] = []
    watch = tracking.JobWatch(lambda: AsyncClient(server), "default", messages.append)
    watch.start()
    tracked.add("followed", "task")
    client.submit(job("followed", image="busybox", command=["true"]))
    ended: list[tracking.Fact] = []

    def has_ended() -> bool:
        for change in watch.changes():
            ended.extend(fact for fact in tracked.fold(change) if fact.state == "ended")
        return bool(ended)

    until(has_ended)
    watch.stop()
    assert ended[0].job is not None
    assert phases.phase_of(ended[0].job) == "Completed"
    assert messages == []


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
