"""A new leader reads the state and then only the events behind it, whatever was lost before."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from services.controller.tests.support.terms import Clock, Term, pod_event
from stromboli.controller.core.store import batch_state, event_history
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared import envelope, topics
from stromboli.shared.messages import batch as messages

HOUR = timedelta(hours=1)
OLD = [pod_event(f"default/j{number}", 0, "Running") for number in range(50)]
NEW = [pod_event("default/j1", 0, "Succeeded"), pod_event("default/late", 0, "Pending")]


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[EmbeddedBus]:
    async with EmbeddedBus(tmp_path / "log.db") as bus:
        yield bus


async def old_events(bus: EmbeddedBus, clock: Clock) -> Term:
    """A leader that has written a round, and an hour later another one behind ``NEW``."""
    first = Term(bus, clock)
    await first.begin()
    await first.publish(OLD)
    await first.write_round()
    clock.pass_by(HOUR)
    await first.publish(NEW)
    await first.write_round()
    return first


async def begun(bus: EmbeddedBus, clock: Clock) -> Term:
    term = Term(bus, clock)
    await term.begin()
    return term


async def test_a_new_leader_reads_the_events_behind_the_state_alone(bus: EmbeddedBus) -> None:
    clock = Clock()
    first = await old_events(bus, clock)
    after_round = [pod_event("default/late", 0, "Running")]
    await first.publish(after_round)
    second = await begun(bus, clock)
    assert second.cache.published.jobs == first.cache.published.jobs
    assert second.cache.events == len(NEW) + len(after_round)
    assert set(second.cache.published.loaded) == set(second.cache.published.jobs)


async def test_a_standby_is_as_new_as_a_leader_that_starts_later(bus: EmbeddedBus) -> None:
    clock = Clock()
    standby = Term(bus, clock)
    following = asyncio.create_task(standby.reader.read(to_the_end=False))
    first = await old_events(bus, clock)
    await standby.cache.has_read(len(OLD) + len(NEW))
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    await standby.begin()
    assert standby.cache.published.jobs == first.cache.published.jobs
    assert standby.state.dirty_chunks == 0, "what the leader wrote is not written again"


async def test_a_lost_state_is_read_from_the_events_and_written_again(bus: EmbeddedBus) -> None:
    clock = Clock()
    first = await old_events(bus, clock)
    await bus.recreate(topics.BATCH_STATE)
    second = await begun(bus, clock)
    assert second.cache.published.jobs == first.cache.published.jobs
    assert second.cache.events == len(OLD) + len(NEW)
    await second.write_round()
    third = await begun(bus, clock)
    assert third.cache.published.jobs == first.cache.published.jobs
    assert third.cache.events == len(NEW)


async def test_a_state_that_was_lost_under_a_running_leader_is_not_believed(
    bus: EmbeddedBus,
) -> None:
    """The leader continues to write changes: the new topic has a position and few of the jobs."""
    clock = Clock()
    first = await old_events(bus, clock)
    await bus.recreate(topics.BATCH_STATE)
    await first.publish([pod_event("default/late", 0, "Running")])
    await first.write_round()
    second = await begun(bus, clock)
    assert second.cache.published.jobs == first.cache.published.jobs


async def test_a_state_of_lost_events_is_discarded(bus: EmbeddedBus) -> None:
    """Consumers cannot read the lost events, so they are published again."""
    clock = Clock()
    await old_events(bus, clock)
    await bus.recreate(topics.BATCH_EVENTS)
    second = await begun(bus, clock)
    assert second.cache.published.jobs == {}
    await second.publish([pod_event("default/new", 0, "Running")])
    await second.write_round()
    third = await begun(bus, clock)
    assert third.cache.published.jobs == second.cache.published.jobs
    assert await keys_of(bus) == {"default/new", batch_state.POSITION_KEY}


async def test_a_job_that_is_deleted_leaves_no_record(bus: EmbeddedBus) -> None:
    clock = Clock()
    first = await begun(bus, clock)
    await first.publish([pod_event("default/a", index, "Running") for index in range(200)])
    await first.write_round()
    assert len(await keys_of(bus)) == 1 + 4
    gone = messages.JobDeleted(job="default/a", uid="uid-default/a", at=clock.now)
    await first.publish([gone])
    await first.write_round()
    assert await keys_of(bus) == {batch_state.POSITION_KEY}


async def test_a_record_of_a_fenced_leader_hides_nothing(bus: EmbeddedBus) -> None:
    """Compaction keeps the newest record of a key, also where readers drop it."""
    clock = Clock()
    first = await old_events(bus, clock)
    second = await begun(bus, clock)
    await first.publish([pod_event("default/j7", 0, "Failed")])
    await first.write_round()  # it was paused, and does not know that it is fenced
    await second.publish([pod_event("default/j8", 0, "Failed")])
    await second.write_round()
    third = await begun(bus, clock)
    assert third.cache.published.jobs == second.cache.published.jobs
    assert third.cache.published.jobs["default/j7"].tasks["default/j7-worker-0"].state == "Running"


async def test_a_catch_up_read_is_not_recorded_as_an_older_version(bus: EmbeddedBus) -> None:
    """The next leader has to look for the object again: its cache may be behind, too."""
    clock = Clock()
    first = await old_events(bus, clock)
    second = await begun(bus, clock)
    second.cache.published.mark_looked_for("default/j1", "default/j1-worker-0")
    await second.publish([pod_event("default/j1", 1, "Running")])
    await second.write_round()
    third = await begun(bus, clock)
    assert third.cache.published.jobs["default/j1"].tasks["default/j1-worker-0"].object_version == 5
    assert isinstance(first.cache.published, event_history.EventHistory)


async def keys_of(bus: EmbeddedBus) -> set[str]:
    """Keys on ``batch.state`` that are no tombstones."""
    records: dict[str, envelope.Record] = {}
    async with contextlib.aclosing(bus.materialize([topics.BATCH_STATE])) as batches:
        async for batch in batches:
            records |= {record.key: record for record in batch.records}
            if batch.caught_up:
                break
    return {key for key, record in records.items() if record.value is not None}
