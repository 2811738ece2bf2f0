"""System health: what the newest record of each topic says about its writer."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from stromboli.admission import lease_status, log_status
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import decoding, envelope, errors, topics
from stromboli.shared.api.views import system_health
from stromboli.shared.leader_election import cluster_lease, lease_rules
from stromboli.shared.leader_election.settings import LeaseSettings
from stromboli.shared.messages import scheduling
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders
from stromboli.testkit.builders import NOON
from stromboli.testkit.doubles import shared_rest

NOW = NOON + timedelta(seconds=10)


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[EmbeddedBus]:
    async with EmbeddedBus(tmp_path / "log") as embedded_bus:
        yield embedded_bus


async def read(bus: EmbeddedBus, **read_up_to: int) -> system_health.SystemHealth:
    health = runtime.Health("admission")
    health.set("cache", None)
    names = {name.replace("_", "."): offset for name, offset in read_up_to.items()}
    return await log_status.LogStatus(bus, health, names, lambda: NOW).read()


def topic(found: system_health.SystemHealth, name: str) -> system_health.TopicStatus:
    return next(it for it in found.topics if it.name == name)


async def renew(bus: EmbeddedBus, holder: str, duration_s: float) -> None:
    writer = await bus.open_writer("scheduler", "scheduler-1")
    message = scheduling.LeaseRenewed(holder=holder, duration_s=duration_s)
    draft = envelope.Draft(topic=topics.LEASE, key=scheduling.LEASE_KEY, message=message, time=NOON)
    await writer.append(draft)


async def test_an_empty_log_has_no_leaders_and_no_dead_letters(bus: EmbeddedBus) -> None:
    found = await read(bus)
    assert (found.problems, found.leaders, found.dead_letters) == ({}, (), 0)
    assert topic(found, "scheduling.decisions").last_at is None


async def test_durations_of_sessions_are_those_that_the_scheduler_published(
    bus: EmbeddedBus, tmp_path: Path
) -> None:
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        admission.log_status = log_status.LogStatus(bus, runtime.Health("a"), {}, lambda: NOW).read
        async with shared_rest.client_of(admission, cluster) as client:
            assert (await client.get("/v1/health")).json()["sessions"] is None
            message = scheduling.SessionsMeasured(at=NOON, sessions=9, p50_s=0.5, p99_s=2.0)
            key = scheduling.SESSIONS_KEY
            draft = envelope.Draft(topic=topics.EXPLANATIONS, key=key, message=message, time=NOON)
            admission.fold(builders.make_record(draft))
            assert (await client.get("/v1/health")).json()["sessions"] == {
                "at": "2026-01-01T12:00:00Z",
                "sessions": 9,
                "p50S": 0.5,
                "p99S": 2.0,
            }
            admission.forget({topics.EXPLANATIONS.name})
            assert (await client.get("/v1/health")).json()["sessions"] is None


@pytest.mark.parametrize(("duration_s", "is_expired"), [(15.0, False), (5.0, True)])
async def test_the_leader_is_the_holder_of_the_lease_in_the_log(
    bus: EmbeddedBus, duration_s: float, is_expired: bool
) -> None:
    await renew(bus, "scheduler-1", duration_s)
    (leader,) = (await read(bus)).leaders
    assert (leader.service, leader.holder) == ("scheduler", "scheduler-1")
    assert (leader.renewed_at, leader.is_expired) == (NOON, is_expired)


async def test_a_topic_shows_its_newest_record_and_how_far_reading_is_behind(
    bus: EmbeddedBus,
) -> None:
    await renew(bus, "scheduler-1", 15.0)
    end = topic(await read(bus), "scheduling.lease").end
    topic_status = topic(await read(bus, scheduling_lease=end - 1), "scheduling.lease")
    assert (topic_status.writer, topic_status.last_at, topic_status.lag) == ("scheduler", NOON, 1)
    assert topic_status.last_type == "stromboli.scheduling.lease_renewed.v1"
    assert topic(await read(bus), "scheduling.lease").lag is None


async def test_the_last_dead_letter_is_shown_with_its_reason(bus: EmbeddedBus) -> None:
    writer = await bus.open_writer("controller", "controller-1")
    garbled = builders.undecodable_record(topics.BATCH_EVENTS, "team/train", 7)
    for reason in ("first", "not JSON"):
        await writer.append(runtime.dead_letter(garbled, "controller", reason, NOON))
    found = await read(bus)
    assert found.dead_letters == 2
    assert found.last_dead_letter == system_health.DeadLetterStatus(
        topic="batch.events",
        offset=7,
        key="team/train",
        reported_by="controller",
        reason="not JSON",
        at=NOON,
    )


async def test_viewers_do_not_read_the_log_more_often_than_it_changes(bus: EmbeddedBus) -> None:
    status = log_status.LogStatus(bus, runtime.Health("admission"), {}, lambda: NOW)
    first = await status.read()
    await renew(bus, "scheduler-1", 15.0)
    assert await status.read() is first


LEASE = LeaseSettings(namespace="default")


def leases(cluster: EmbeddedCluster) -> lease_status.LeaseStatus:
    return lease_status.LeaseStatus(cluster, LEASE, "east", lambda: NOW)


@pytest.mark.parametrize(("duration_s", "is_expired"), [(15, False), (5, True)])
async def test_leaders_that_hold_leases_of_the_cluster_are_shown_beside_those_of_the_log(
    cluster: EmbeddedCluster, bus: EmbeddedBus, duration_s: int, is_expired: bool
) -> None:
    place = cluster_lease.place(LEASE, "controller", "east")
    store = cluster_lease.ClusterLeaseStore(cluster, *place, lambda: NOON)
    await store.read()
    await store.acquire(
        "controller-1",
        lease_rules.LeaseTiming(duration_s=duration_s, renew_deadline_s=3.0, retry_period_s=1.0),
    )
    await renew(bus, "scheduler-1", 15.0)
    health = runtime.Health("admission")
    status = log_status.LogStatus(bus, health, {}, lambda: NOW, leases(cluster).read)
    found = await status.read()
    assert [(it.service, it.holder) for it in found.leaders] == [
        ("scheduler", "scheduler-1"),
        ("controller", "controller-1"),
    ]
    assert (found.leaders[1].renewed_at, found.leaders[1].is_expired) == (NOON, is_expired)
    assert found.warnings == {}


async def test_leases_that_cannot_be_read_are_a_warning_beside_the_state_of_the_log(
    bus: EmbeddedBus,
) -> None:
    async def forbidden() -> tuple[system_health.LeaderStatus, ...]:
        raise errors.ForbiddenError("get Lease", "it may not get leases")

    await renew(bus, "scheduler-1", 15.0)
    health = runtime.Health("admission")
    found = await log_status.LogStatus(bus, health, {}, lambda: NOW, forbidden).read()
    assert [it.service for it in found.leaders] == ["scheduler"]
    assert "may not get leases" in found.warnings["leases"]


async def test_rest_has_no_health_before_the_service_reads_the_log(
    cluster: EmbeddedCluster, bus: EmbeddedBus
) -> None:
    admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
    async with shared_rest.client_of(admission, cluster) as client:
        assert (await client.get("/v1/health")).status_code == 503
        expected = await read(bus)

        async def answer() -> system_health.SystemHealth:
            return expected

        admission.log_status = answer
        response = await client.get("/v1/health")
    assert decoding.from_json(response.content, system_health.SystemHealth) == expected
    assert msgspec.json.decode(response.content)["deadLetters"] == 0
