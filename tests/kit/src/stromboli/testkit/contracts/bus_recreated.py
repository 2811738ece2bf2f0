"""The part of the ``Bus`` contract about topics that are deleted and created again.

See ``bus``, which has the fixtures.
"""

import abc
import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port
from stromboli.testkit import builders, log_reading, records

FENCED: tuple[topics.Service, ...] = ("controller", "monitor", "scheduler")
EVENTS = topics.BATCH_EVENTS


class RecreationContract(abc.ABC):
    """Tests of the rules about topics that lose their records, one for each rule."""

    @abc.abstractmethod
    async def recreate(self, open_bus: port.Bus, topic: topics.Topic) -> None:
        """Delete ``topic`` and create it again."""

    @pytest.mark.parametrize("service", FENCED)
    async def test_epochs_never_go_back_whichever_topic_is_recreated(
        self, open_bus: port.Bus, service: topics.Service
    ) -> None:
        """Each topic of a service is recreated once, with a running reader: it accepts the next
        writer on every topic, drops the previous one, and reports the recreated topics."""
        own = topics.of(service)
        before = await open_bus.open_writer(service, "w")
        await before.append(*(draft(topic, "first") for topic in own))
        async with contextlib.aclosing(open_bus.materialize(own)) as batches:
            await log_reading.until_caught_up(batches)
            for number, topic in enumerate(own):
                await self.recreate(open_bus, topic)
                writer = await open_bus.open_writer(service, f"w{number}")
                assert writer.epoch > before.epoch
                await writer.append(*(draft(each, f"next{number}") for each in own))
                with contextlib.suppress(errors.LogLostError):
                    await before.append(*(draft(each, f"zombie{number}") for each in own))
                await writer.append(*(draft(each, f"end{number}") for each in own))
                read, recreated = await until_all(batches, own, f"end{number}")
                assert recreated == {topic.name}
                for each in own:
                    found = records.keys([it for it in read if it.topic == each])
                    # A topic may have been read before its reader noticed, and then again.
                    assert found[-2:] == [f"next{number}", f"end{number}"], each.name
                    assert f"zombie{number}" not in found
                before = writer

    async def test_a_new_reader_accepts_the_same_records_as_a_continuous_one(
        self, open_bus: port.Bus
    ) -> None:
        """This also holds on the main topic, whose offsets restart below the epoch."""
        await open_bus.open_writer("controller", "c1")
        before = await open_bus.open_writer("controller", "c2")
        await before.append(records.phase_change("default/before"))
        await self.recreate(open_bus, topics.OUTCOMES)
        writer = await open_bus.open_writer("controller", "new")
        await writer.append(records.outcome_of("new"))
        with contextlib.suppress(errors.LogLostError):
            await before.append(records.outcome_of("zombie"))
        await writer.append(records.outcome_of("end"))
        read, _ = await records.read(open_bus, topics.OUTCOMES)
        assert records.keys(read) == ["new", "end"]
        async with open_bus.consume(topics.OUTCOMES, "g") as consumer:
            taken = await log_reading.take(consumer, 3)
        assert records.keys(taken) == ["new", "end"]

    async def test_a_writer_continues_when_another_topic_is_recreated(
        self, open_bus: port.Bus
    ) -> None:
        """The writer announces its epoch on the topic again, so that new readers accept its
        records."""
        writer = await open_bus.open_writer("controller", "c1")
        events = [records.phase_change(f"default/{number}") for number in range(4)]
        await writer.append(*events[:3])
        async with contextlib.aclosing(open_bus.materialize([EVENTS])) as batches:
            await log_reading.until_caught_up(batches)
            await self.recreate(open_bus, EVENTS)
            await writer.append(events[3])
            read, recreated = await until_all(batches, (EVENTS,), "default/3")
        assert set(records.keys(read)) == {"default/3"}
        assert recreated == {EVENTS.name}
        read, _ = await records.read(open_bus, EVENTS)
        assert set(records.keys(read)) == {"default/3"}
        successor = await open_bus.open_writer("controller", "c2")
        await successor.append(records.phase_change("default/end"))
        await writer.append(events[0])
        read, _ = await records.read(open_bus, EVENTS)
        assert set(records.keys(read)) == {"default/3", "default/end"}

    async def test_a_writer_fails_when_its_main_topic_is_recreated(
        self, open_bus: port.Bus
    ) -> None:
        """No record announces its epoch any more, so it has to be opened again."""
        writer = await open_bus.open_writer("controller", "c1")
        await writer.append(records.outcome_of("before"))
        await self.recreate(open_bus, topics.OUTCOMES)
        with pytest.raises(errors.LogLostError):
            await writer.append(records.outcome_of("after"))
        again = await open_bus.open_writer("controller", "c1")
        assert again.epoch > writer.epoch

    async def test_a_position_in_a_recreated_topic_means_its_start(
        self, open_bus: port.Bus
    ) -> None:
        """This holds even if the new topic has as many records by then."""
        writer = await open_bus.open_writer("controller", "c1")
        await writer.append(records.phase_change("default/old"))
        async with contextlib.aclosing(open_bus.materialize([EVENTS])) as batches:
            place = await log_reading.until_caught_up(batches)
        await self.recreate(open_bus, EVENTS)
        successor = await open_bus.open_writer("controller", "c2")
        keys = [f"default/{number}" for number in range(5)]
        await successor.append(*(records.phase_change(key) for key in keys))
        read, _ = await records.read(open_bus, EVENTS, start=place)
        assert records.keys(read) == keys

    async def test_a_consumer_restarts_in_a_recreated_topic(self, open_bus: port.Bus) -> None:
        """This holds for a running and a later consumer; finishing a record of the previous topic
        has no effect."""
        writer = await open_bus.open_writer("controller", "c1")
        await writer.append(*(records.phase_change(f"default/old{n}") for n in range(4)))
        async with open_bus.consume(EVENTS, "g") as consumer:
            old = await log_reading.take(consumer, 4)
            for record in old[:3]:
                consumer.acknowledge(record)
            await self.recreate(open_bus, EVENTS)
            keys = [f"default/{number}" for number in range(6)]
            await writer.append(*(records.phase_change(key) for key in keys))
            taken = await take_until(consumer, keys[-1])
            assert set(records.keys(taken)) == set(keys)
            consumer.acknowledge(old[3])
            for record in taken[:-1]:
                consumer.acknowledge(record)
            assert consumer.lowest_unfinished == taken[-1].offset
        async with open_bus.consume(EVENTS, "g") as consumer:
            assert records.keys(await log_reading.take(consumer, 1)) == [keys[-1]]


def draft(topic: topics.Topic, key: str) -> envelope.Draft:
    """A draft that is valid on any topic."""
    return envelope.Draft(
        topic=topic, key=key, message=None, time=builders.NOON, object_uid="u", object_version="1"
    )


async def until_all(
    batches: AsyncIterator[port.Batch], wanted: tuple[topics.Topic, ...], key: str
) -> tuple[list[envelope.Record], set[str]]:
    """Read until ``key`` has arrived on each of these topics, including recreated ones. Records
    from before a topic was recreated do not count.
    """
    read: list[envelope.Record] = []
    recreated: set[str] = set()
    async with asyncio.timeout(records.DEADLINE_S):
        while {it.topic for it in read if it.key == key} != set(wanted):
            batch = await anext(batches)
            recreated |= batch.recreated
            read = [it for it in read if it.topic.name not in batch.recreated]
            read += batch.records
    return read, recreated


async def take_until(consumer: port.GroupConsumer, key: str) -> list[envelope.Record]:
    """Read the next records of a group up to the one with this key."""
    taken: list[envelope.Record] = []
    async with asyncio.timeout(records.DEADLINE_S):
        async for record in consumer:
            taken.append(record)
            if record.key == key:
                break
    return taken
