"""The part of the ``Bus`` contract about epochs: the records that readers accept after a writer was
replaced.

See ``bus``, which has the fixtures.
"""

import asyncio
import contextlib
from typing import Protocol

from stromboli.shared import envelope, topics
from stromboli.shared.bus import port
from stromboli.shared.messages import log
from stromboli.testkit import builders, log_reading, records

NODES = [builders.snapshot_of(builders.make_node(f"n{number}")) for number in range(4)]


class BusFactory(Protocol):
    """Creates connections to the log of a cluster; two connections of one cluster read the same
    records."""

    def __call__(self, cluster_name: str = "a") -> port.Bus: ...


class EpochContract:
    """Tests of the rules about epochs, one for each rule."""

    async def test_a_writer_opens_on_its_main_topic(self, open_bus: port.Bus) -> None:
        """``opened`` determines its epoch; the record names the process."""
        writer = await open_bus.open_writer("monitor", "pod-17")
        ((record,), _) = await records.read(open_bus, topics.SYNC)
        assert (record.key, record.offset) == (log.OPENED_KEY, writer.opened_at)
        assert record.epoch == writer.epoch
        assert envelope.decode(record) == log.Opened(writer="monitor", instance="pod-17")

    async def test_a_later_writer_has_a_higher_epoch(self, bus_factory: BusFactory) -> None:
        """This holds in the same process, and after all connections were closed."""
        async with bus_factory() as first:
            epochs = [(await first.open_writer("monitor", name)).epoch for name in ("m1", "m2")]
        async with bus_factory() as second:
            epochs.append((await second.open_writer("monitor", "m3")).epoch)
        assert epochs == sorted(set(epochs))

    async def test_records_of_a_replaced_writer_are_fenced(self, open_bus: port.Bus) -> None:
        """A paused writer can still append when it resumes; readers drop records after its
        successor's opening."""
        paused = await open_bus.open_writer("controller", "c1")
        await paused.append(records.phase_change("default/before"))
        successor = await open_bus.open_writer("controller", "c2")
        await successor.append(records.phase_change("default/successor"))
        await paused.append(records.phase_change("default/zombie"))
        await successor.append(records.phase_change("default/end"))
        accepted = ["default/before", "default/successor", "default/end"]
        read, _ = await records.read(open_bus, topics.BATCH_EVENTS)
        assert records.keys(read) == accepted
        async with open_bus.consume(topics.BATCH_EVENTS, "g") as consumer:
            assert records.keys(await log_reading.take(consumer, 3)) == accepted

    async def test_opening_is_enough_to_replace_on_the_main_topic(self, open_bus: port.Bus) -> None:
        """The successor's ``opened`` record is on the topic, so it need not append
        anything else.
        """
        paused = await open_bus.open_writer("controller", "c1")
        await paused.append(records.outcome_of("before"))
        successor = await open_bus.open_writer("controller", "c2")
        await paused.append(records.outcome_of("zombie"))
        read, _ = await records.read(open_bus, topics.OUTCOMES)
        assert records.keys(read) == ["before"]
        await successor.append(records.outcome_of("end"))
        read, _ = await records.read(open_bus, topics.OUTCOMES)
        assert records.keys(read) == ["before", "end"]

    async def test_the_writer_of_a_topic_can_read_fenced_records(self, open_bus: port.Bus) -> None:
        """They are separate from the accepted records: the writer republishes keys whose records a
        fenced record hides.
        """
        paused = await open_bus.open_writer("monitor", "m1")
        successor = await open_bus.open_writer("monitor", "m2")
        await successor.append(NODES[0])
        await paused.append(NODES[1])
        fenced: list[envelope.Record] = []
        batches = open_bus.materialize([topics.NODES])
        async with asyncio.timeout(records.DEADLINE_S), contextlib.aclosing(batches):
            async for batch in batches:
                assert NODES[1].key not in records.keys(batch.records)
                fenced += batch.fenced
                if batch.caught_up:
                    break
        assert records.keys(fenced) == [NODES[1].key]

    async def test_a_running_fold_stops_hearing_a_replaced_writer(self, open_bus: port.Bus) -> None:
        paused = await open_bus.open_writer("monitor", "m1")
        await paused.append(NODES[0])
        async with contextlib.aclosing(open_bus.materialize([topics.NODES])) as batches:
            assert records.keys(await log_reading.next_records(batches, 1)) == [NODES[0].key]
            successor = await open_bus.open_writer("monitor", "m2")
            await successor.append(NODES[1])
            await paused.append(NODES[2])
            await successor.append(NODES[3])
            assert records.keys(await log_reading.next_records(batches, 2)) == [
                NODES[1].key,
                NODES[3].key,
            ]

    async def test_a_replaced_writer_is_fenced_for_a_continued_materialization(
        self, open_bus: port.Bus
    ) -> None:
        """Its reader was down when the fenced writer appended: the position of the previous
        materialization contains the accepted epochs.
        """
        paused = await open_bus.open_writer("controller", "c1")
        await paused.append(records.phase_change("default/before"))
        successor = await open_bus.open_writer("controller", "c2")
        await successor.append(records.phase_change("default/successor"))
        wanted = (topics.BATCH_EVENTS, topics.OUTCOMES)
        async with contextlib.aclosing(open_bus.materialize(wanted)) as batches:
            place = await log_reading.until_caught_up(batches)
        await paused.append(records.phase_change("default/zombie"), records.outcome_of("zombie"))
        read, _ = await records.read(open_bus, *wanted, start=place)
        assert records.keys(read) == []
        await successor.append(records.phase_change("default/end"))
        read, _ = await records.read(open_bus, *wanted, start=place)
        assert records.keys(read) == ["default/end"]

    async def test_a_replaced_writer_is_fenced_for_a_continued_consumer(
        self, bus_factory: BusFactory
    ) -> None:
        """This holds with and without unfinished records: late decisions of a replaced writer are
        not executed."""
        async with bus_factory() as before:
            paused = await before.open_writer("controller", "c1")
            successor = await before.open_writer("controller", "c2")
            events = [records.phase_change(f"default/{name}") for name in ("first", "a")]
            await successor.append(*events)
            for group, finished in (("all", 2), ("some", 1)):
                async with before.consume(topics.BATCH_EVENTS, group) as consumer:
                    for record in (await log_reading.take(consumer, 2))[:finished]:
                        consumer.acknowledge(record)
            await paused.append(records.phase_change("default/zombie"))
            await successor.append(records.phase_change("default/b"))
        async with bus_factory() as after:
            async with after.consume(topics.BATCH_EVENTS, "all") as consumer:
                assert records.keys(await log_reading.take(consumer, 1)) == ["default/b"]
            async with after.consume(topics.BATCH_EVENTS, "some") as consumer:
                accepted = records.keys(await log_reading.take(consumer, 2))
                assert accepted == ["default/a", "default/b"]

    async def test_a_recreated_log_has_new_epochs(self, open_bus: port.Bus) -> None:
        """A position beyond the end belongs to another log: its epochs do not apply."""
        writer = await open_bus.open_writer("monitor", "m1")
        await writer.append(NODES[0])
        name = topics.NODES.name
        elsewhere = port.Position({name: 1000}, {name: 1000})
        read, _ = await records.read(open_bus, topics.NODES, start=elsewhere)
        assert records.keys(read) == [NODES[0].key]
