"""Limits per user: requests per second, and live jobs at every entry point."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.admission.tests.test_unknown_fields import opened, review
from stromboli.admission import service
from stromboli.admission.auth import authentication
from stromboli.admission.core.live_jobs import RESERVED_S, LiveJobs, Owner
from stromboli.admission.rest import application
from stromboli.admission.review.submitted_objects import RejectedError
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared import envelope, keys
from stromboli.shared.api import batch, meta
from stromboli.shared.runtime import runtime
from stromboli.shared.token_buckets import TokenBuckets
from stromboli.testkit import builders, records
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.contracts.accounts import Scene
from stromboli.testkit.doubles import authorized_admission

ANN = Owner("ann", "blue")


def job(name: str) -> dict[str, Any]:
    document = manifests.job()
    document["metadata"]["name"] = name
    return document


def record(name: str, phase: str = "Running", user: str = "ann", queue: str = "blue") -> Any:
    annotations = {keys.USER: user}
    found = batch.Job(
        metadata=meta.ObjectMeta(name=name, namespace="default", annotations=annotations),
        spec=batch.JobSpec(queue=queue),
        status=batch.JobStatus(state=batch.JobState(phase=phase)),
    )
    return builders.make_record(builders.snapshot_of(found))


def test_a_user_may_send_a_burst_and_then_the_rate() -> None:
    buckets = TokenBuckets(rate=2.0, burst=3.0)
    assert [buckets.take("ann", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("ben", 0.0) == 0.0
    assert buckets.take("ann", 0.5) == 0.0
    assert buckets.take("ann", 0.5) > 0


def test_no_rate_is_no_limit_and_full_buckets_take_no_memory() -> None:
    assert not any(TokenBuckets(rate=0.0, burst=0.0).take("ann", 0.0) for _ in range(99))
    buckets = TokenBuckets(rate=1.0, burst=2.0)
    for at in range(1000):
        buckets.take(f"user-{at}", float(at))
    assert len(buckets) <= 3


async def test_rest_answers_429_with_the_time_until_the_next_request(tmp_path: Path) -> None:
    async with authorized_admission.open_admission(tmp_path, Scene()) as server:
        settings = AdmissionSettings(requests_per_second=0.001, request_burst=1)
        server.app = application.rest_application(
            server.admission,
            server.cluster,
            settings,
            [runtime.Health("admission")],
            server.authenticator,
        )
        path = f"/v1/namespaces/{server.scene.blue}/jobs"
        async with server.as_("ann") as ann, server.as_("ben") as ben:
            assert (await ann.get(path)).status_code == 200
            answer = await ann.get(path)
            assert answer.status_code == 429
            assert 0 < int(answer.headers["retry-after"]) <= 1000
            assert (await ben.get(path)).status_code != 429


def test_live_jobs_are_counted_until_they_end_or_go() -> None:
    jobs = LiveJobs(max_per_user=2)
    for name in ("a", "b", "b"):
        jobs.fold(record(name))
    (violation,) = jobs.reserve("default/c", ANN, 0.0)
    assert violation.reason == "user 'ann' has 2 live jobs, the limit is 2"
    assert not jobs.reserve("default/c", Owner("ben", "blue"), 0.0)
    jobs.fold(record("a", phase="Completed"))
    assert not jobs.reserve("default/d", ANN, 0.0)


def test_a_queue_has_a_separate_limit() -> None:
    jobs = LiveJobs(max_per_queue=1)
    jobs.fold(record("a"))
    (violation,) = jobs.reserve("default/b", Owner("ben", "blue"), 0.0)
    assert (violation.path, violation.reason) == (
        "spec.queue",
        "queue 'blue' has 1 live jobs, the limit is 1",
    )
    assert not jobs.reserve("default/b", Owner("ben", "red"), 0.0)


def test_a_job_that_changes_its_queue_counts_in_the_other_one() -> None:
    """Else a user would submit to a queue with room and move the job."""
    jobs = LiveJobs(max_per_user=1, max_per_queue=1)
    jobs.fold(record("a"))
    assert not jobs.reserve("default/a", Owner("ann", "red"), 0.0)
    assert not jobs.reserve("default/r", Owner("ben", "red"), 0.0)
    (violation,) = jobs.reserve("default/a", Owner("ann", "red"), 0.0)
    assert violation.path == "spec.queue"
    assert not jobs.reserve("default/a", Owner("ann", "blue"), 0.0)


def test_a_job_that_the_cache_lacks_yet_counts_until_it_arrives_fails_or_expires() -> None:
    jobs = LiveJobs(max_per_user=1)
    assert not jobs.reserve("default/a", ANN, 0.0)
    assert not jobs.reserve("default/a", ANN, 0.0)  # the webhook after REST
    assert jobs.reserve("default/b", ANN, 1.0)
    jobs.fold(record("a"))
    assert jobs.reserve("default/b", ANN, 2.0)
    jobs.fold(record("a", phase="Failed"))
    assert not jobs.reserve("default/b", ANN, 3.0)
    jobs.release("default/b")
    assert not jobs.reserve("default/c", ANN, 4.0)
    jobs.complete_until_s = 4.0 + RESERVED_S
    assert not jobs.reserve("default/d", ANN, 4.0 + RESERVED_S)


def test_no_reservation_ends_while_the_monitor_is_away() -> None:
    """Its job may have been written, and ``cluster.jobs`` does not show it yet."""
    jobs = LiveJobs(max_per_user=1)
    jobs.complete_until_s = 0.0
    assert not jobs.reserve("default/a", ANN, 1.0)
    assert jobs.reserve("default/b", ANN, 1.0 + 9 * RESERVED_S)


class Burst(RuleBasedStateMachine):
    """Two replicas that fold ``cluster.jobs`` at their own pace."""

    LIMIT, REPLICAS = 3, 2

    def __init__(self) -> None:
        super().__init__()
        self.replicas = [LiveJobs(max_per_user=self.LIMIT) for _ in range(self.REPLICAS)]
        self.read = [0] * self.REPLICAS
        self.log: list[Any] = []
        self.live: list[str] = []
        self.names = (f"job-{number}" for number in itertools.count())

    @rule(at=st.integers(0, REPLICAS - 1))
    def submit(self, at: int) -> None:
        name = next(self.names)
        has_read_all = self.read[at] == len(self.log)
        refused = self.replicas[at].reserve(f"default/{name}", ANN, 0.0)
        if has_read_all:
            assert bool(refused) == (len(self.live) >= self.LIMIT)
        if not refused:
            self.live.append(name)
            self.log.append(record(name))

    @rule()
    def end(self) -> None:
        if self.live:
            self.log.append(record(self.live.pop(0), phase="Completed"))

    @rule(at=st.integers(0, REPLICAS - 1))
    def fold(self, at: int) -> None:
        for each in self.log[self.read[at] :]:
            self.replicas[at].fold(each)
        self.read[at] = len(self.log)

    @invariant()
    def replicas_together_admit_a_multiple_of_the_limit_at_most(self) -> None:
        assert len(self.live) <= self.REPLICAS * self.LIMIT


TestBurst = Burst.TestCase


async def test_jobs_that_were_there_before_the_service_count(tmp_path: Path) -> None:
    """The service reads ``cluster.jobs``; what it admitted itself is not all there is."""
    health = runtime.Health("admission")
    async with (
        EmbeddedBus(tmp_path / "log.db") as bus,
        opened(tmp_path, max_live_jobs_per_queue=1) as admission,
    ):
        monitor = await bus.open_writer("monitor", "test")
        there = record("there", queue="default")
        message = envelope.decode(there)
        assert isinstance(message, batch.Job)
        await monitor.append(builders.snapshot_of(message))
        settings = AdmissionSettings(max_live_jobs_per_queue=1)
        work = service.serve(admission, settings, bus, health, runtime.utc_now, "test")
        serving = asyncio.create_task(work)
        async with asyncio.timeout(records.DEADLINE_S):
            while "cache" in health.problems or "sync" not in health.problems:
                assert not serving.done(), serving.exception()
                await asyncio.sleep(0.001)
        with pytest.raises(RejectedError, match="has 1 live jobs, the limit is 1"):
            await admission.submit([job("new")], authentication.LOCAL_PRINCIPAL)
        serving.cancel()
        await asyncio.wait([serving])


@pytest.mark.parametrize("entry_point", ["rest", "kafka"])
async def test_a_submission_beyond_the_limit_is_refused(tmp_path: Path, entry_point: Any) -> None:
    async with opened(tmp_path, max_live_jobs_per_queue=2) as admission:

        async def submit(*names: str) -> None:
            documents = [job(name) for name in names]
            await admission.submit(
                documents, authentication.LOCAL_PRINCIPAL, entry_point=entry_point
            )

        await submit("a")
        with pytest.raises(RejectedError, match="the limit is 2") as refused:
            await submit("b", "c")
        assert [each.path for each in refused.value.violations] == ["objects[1].spec.queue"]
        await submit("b")
        with pytest.raises(RejectedError):
            await submit("c")


async def test_a_webhook_refuses_a_job_beyond_the_limit_and_counts_no_dry_run(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, max_live_jobs_per_user=1) as admission:

        async def answer(name: str, *, dry_run: bool = False) -> bool:
            body = msgspec.json.decode(review(job(name)))
            body["request"] |= {"userInfo": {"username": "ann"}, "dryRun": dry_run}
            found = await admission.answer("/jobs/validate", msgspec.json.encode(body))
            allowed: bool = msgspec.json.decode(found)["response"]["allowed"]
            return allowed

        assert await answer("a", dry_run=True)
        assert await answer("a")
        assert not await answer("b")
