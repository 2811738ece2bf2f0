"""Rules of the service: it waits for its store and the log, and catches up."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from services.history.tests.support import events
from stromboli.embedded.bus import EmbeddedBus
from stromboli.history.core import folding
from stromboli.history.service import HistoryService, lag_s
from stromboli.history.settings import HistorySettings
from stromboli.shared import envelope, errors, topics
from stromboli.shared.api.views import accounting
from stromboli.shared.bus import port
from stromboli.shared.messages import admission, base, batch, log, node_topology, scheduling
from stromboli.testkit import records
from stromboli.testkit.builders import make_node, make_record, snapshot_of
from stromboli.testkit.doubles.interruptible_bus import InterruptibleBus


def now() -> datetime:
    return events.at(1000)


async def publish(bus: port.Bus, *messages: Any) -> None:
    writer = await bus.open_writer("controller", "test")
    for message in messages:
        await writer.append(
            envelope.Draft(
                topic=events.topic_of(message), key="team/train", message=message, time=message.at
            )
        )


class Facts:
    """The service's reports, which a test can wait for."""

    def __init__(self) -> None:
        self._problems: dict[str, str] = {}
        self.warnings: dict[str, str] = {}
        self._changed = asyncio.Event()

    def set(self, fact: str, problem: str | None) -> None:
        self._problems[fact] = problem or ""
        self._changed.set()
        self._changed = asyncio.Event()

    def warn(self, fact: str, warning: str | None) -> None:
        self.warnings[fact] = warning or ""

    async def problem(self, fact: str, text: str) -> None:
        """Wait until the problem of a fact contains a text; empty: until there is none."""
        async with asyncio.timeout(records.DEADLINE_S):
            while not self._is(fact, text):
                await self._changed.wait()

    def _is(self, fact: str, text: str) -> bool:
        problem = self._problems.get(fact, "")
        return text in problem if text else not problem


@contextlib.asynccontextmanager
async def running(bus: port.Bus, database: str, facts: Facts) -> AsyncIterator[HistoryService]:
    service = HistoryService(HistorySettings(database=database), bus, now, facts.set, facts.warn)
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def states(service: HistoryService) -> list[str]:
    """The states of all attempts, in a complete answer: on a slow machine the service may need
    longer than a query waits."""
    async with asyncio.timeout(records.DEADLINE_S):
        while True:
            with contextlib.suppress(errors.UnavailableError):  # its tables are being created
                page = await service.attempts(accounting.AttemptQuery())
                if page.complete:
                    return [it.state for it in page.attempts]


async def test_a_query_sees_what_was_published_before_it(tmp_path: Path, url: str) -> None:
    """It waits for the end of the log, not for the pause between batches."""
    facts = Facts()
    async with EmbeddedBus(tmp_path / "log.db") as bus:
        async with running(bus, url, facts) as service:
            await publish(bus, events.task("Pending", 0))
            assert await states(service) == ["Pending"]
            await publish(bus, events.task("Bound", 1, node="n1"))
            assert await states(service) == ["Bound"]
        await publish(bus, events.task("Running", 2, node="n1"), events.phase("Running", 2, 7))
        async with running(bus, url, facts) as again:
            assert await states(again) == ["Running"]
            query = accounting.UsageQuery(since=events.at(0), until=events.at(11))
            assert [it.cpu_seconds for it in (await again.usage(query)).usage] == [20.0]


async def test_a_store_that_is_away_is_reported_and_then_catches_up(tmp_path: Path) -> None:
    """The file's folder is missing, as a volume that is not mounted yet."""
    facts = Facts()
    folder = tmp_path / "volume"
    async with (
        EmbeddedBus(tmp_path / "log.db") as bus,
        running(bus, f"sqlite:///{folder / 'h.db'}", facts) as service,
    ):
        await publish(bus, events.task("Pending", 0))
        await facts.problem("store", "unable to open database file")
        folder.mkdir()
        await facts.problem("store", "")
        assert await states(service) == ["Pending"]


async def test_a_full_disk_is_reported_and_the_history_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    facts = Facts()
    pages = 10**6

    def limit(connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    sa.event.listen(sa.engine.Engine, "begin", limit)
    try:
        async with (
            EmbeddedBus(tmp_path / "log.db") as bus,
            running(bus, f"sqlite:///{tmp_path / 'h.db'}", facts) as service,
        ):
            await publish(bus, events.task("Pending", 0))
            assert await states(service) == ["Pending"]
            pages = 1
            many = [events.task("Pending", n, f"q{n}", detail="x" * 200) for n in range(400)]
            await publish(bus, *many)
            await facts.problem("store", "full")
            pages = 10**6
            await facts.problem("store", "")
            assert await states(service) == ["Pending"] * 401
    finally:
        sa.event.remove(sa.engine.Engine, "begin", limit)


async def test_a_log_that_is_away_is_reported_and_queries_are_marked_incomplete(
    tmp_path: Path,
) -> None:
    facts = Facts()
    async with EmbeddedBus(tmp_path / "log.db") as opened:
        bus = InterruptibleBus(opened)
        async with running(bus, f"sqlite:///{tmp_path / 'h.db'}", facts) as service:
            await publish(opened, events.task("Pending", 0))
            assert await states(service) == ["Pending"]
            async with bus.cut(1):
                await publish(opened, events.task("Bound", 1, node="n1"))
                page = await service.attempts(accounting.AttemptQuery())
                assert (page.complete, page.attempts[0].state) == (False, "Pending")
            assert await states(service) == ["Bound"]


POISONED: dict[topics.Topic, type[msgspec.Struct]] = {
    topics.DECISIONS: scheduling.StatementDecided,
    topics.OUTCOMES: scheduling.DecisionAnswered,
    topics.EXPLANATIONS: scheduling.PodGroupExplained,
    topics.REVIEWS: admission.JobRequested,
    topics.TOPOLOGY: node_topology.TopologyObserved,
    topics.BATCH_EVENTS: batch.TaskChanged,
}


def poisoned(topic: topics.Topic) -> envelope.Draft:
    """A record of a type that the history reads from a topic, which does not decode."""
    name = base.type_name(POISONED.get(topic, topic.messages[0]))
    return envelope.Draft(
        topic=topic,
        key="poisoned",
        message=None,
        encoded=envelope.Encoded(name, b'{"metadata": 1, "topology": 1, "at": []}'),
        time=events.at(0),
    )


@pytest.mark.parametrize("topic", folding.READ, ids=lambda it: it.name)
async def test_an_undecodable_record_is_a_dead_letter_and_the_history_goes_on(
    tmp_path: Path, url: str, topic: topics.Topic
) -> None:
    """It is counted, and a restart does not repeat the letter."""
    facts = Facts()
    letters: list[envelope.Record] = []
    assert topic.writer is not None
    assert topic.writer != topics.OUTSIDE
    async with EmbeddedBus(tmp_path / "log.db") as bus:
        writer = await bus.open_writer(topic.writer, "poisoning")
        await writer.append(poisoned(topic))
        await publish(bus, events.task("Pending", 0))
        for _ in range(2):
            async with running(bus, url, facts) as service:
                assert await states(service) == ["Pending"]
                async with asyncio.timeout(records.DEADLINE_S):
                    while not (letters := (await records.read(bus, topics.DEAD_LETTERS))[0]):
                        pass
        (letter,) = map(envelope.decode, letters)
        assert isinstance(letter, log.DeadLetter)
        assert (letter.topic, letter.key, letter.reported_by) == (topic.name, "poisoned", "history")
        assert facts.warnings["unreadable records"].startswith("1 since")


async def test_a_record_without_a_time_is_a_dead_letter(tmp_path: Path) -> None:
    """The event, and the record that opened its writer."""
    facts = Facts()
    async with EmbeddedBus(tmp_path / "log.db") as bus:
        await publish(bus, events.task("Pending", 0))
    with contextlib.closing(sqlite3.connect(tmp_path / "log.db")) as log_file, log_file:
        headers = "replace(CAST(headers AS TEXT), 'ce_time', 'ce_other')"
        log_file.execute(f"UPDATE records SET headers = CAST({headers} AS BLOB)")
    async with EmbeddedBus(tmp_path / "log.db") as bus:
        await publish(bus, events.task("Pending", 0, "p2"))
        async with running(bus, f"sqlite:///{tmp_path / 'h.db'}", facts) as service:
            assert await states(service) == ["Pending"]
            assert facts.warnings["unreadable records"].startswith("2 since")


class RefusingBus:
    """A log that grants the history no right to append."""

    def __init__(self, bus: port.Bus) -> None:
        self._bus = bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def open_writer(self, *_: Any) -> "RefusingBus":
        return self

    async def append(self, *_: Any) -> None:
        raise errors.ForbiddenError("append to dead.letters", "not authorized")


async def test_a_log_that_refuses_dead_letters_does_not_stop_the_history(tmp_path: Path) -> None:
    """As before its principal got the right."""
    facts = Facts()
    async with EmbeddedBus(tmp_path / "log.db") as bus:
        writer = await bus.open_writer("monitor", "poisoning")
        await writer.append(poisoned(topics.NODES))
        await publish(bus, events.task("Pending", 0))
        refusing: Any = RefusingBus(bus)
        async with running(refusing, f"sqlite:///{tmp_path / 'h.db'}", facts) as service:
            assert await states(service) == ["Pending"]


@pytest.mark.parametrize("before", [1, 3])
@pytest.mark.parametrize("is_noticed", [True, False])
async def test_events_of_a_topic_that_was_created_again_are_added(
    tmp_path: Path, before: int, *, is_noticed: bool
) -> None:
    """What happened before stays: the history outlives its log. A query takes no offset of the
    deleted topic for one of the new topic."""
    facts = Facts()
    async with (
        EmbeddedBus(tmp_path / "log.db") as bus,
        running(bus, f"sqlite:///{tmp_path / 'h.db'}", facts) as service,
    ):
        await publish(bus, *(events.task("Pending", 0, f"q{number}") for number in range(before)))
        assert await states(service) == ["Pending"] * before
        await bus.recreate(topics.BATCH_EVENTS)
        if is_noticed:
            assert await states(service) == ["Pending"] * before
        await publish(bus, events.task("Pending", 5, "p2"))
        assert await states(service) == ["Pending"] * (before + 1)


async def test_before_the_tables_exist_a_query_is_answered_with_the_start(tmp_path: Path) -> None:
    """And not with an error of the database, however long the migration of an old file takes."""
    settings = HistorySettings(database=f"sqlite:///{tmp_path / 'h.db'}")
    async with EmbeddedBus(tmp_path / "log.db") as bus:
        facts = Facts()
        service = HistoryService(settings, bus, now, facts.set, facts.warn)
        with pytest.raises(errors.UnavailableError, match="the history service is starting"):
            await service.jobs(accounting.JobQuery())


def test_the_lag_is_that_of_the_oldest_event_of_jobs() -> None:
    """A snapshot of a node may be of any age, and a clock of another machine ahead."""
    node = make_record(snapshot_of(make_node("n1")))
    young, old = (events.record(events.task("Pending", second), 0) for second in (8, 5))
    assert lag_s([node, young, old], events.at(9)) == 4
    assert lag_s([young], events.at(7)) == 0
    assert lag_s([node], events.at(9)) is None
