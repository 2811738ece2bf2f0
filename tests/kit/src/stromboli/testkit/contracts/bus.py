"""The contract of every ``Bus``. An adapter's tests subclass ``BusContract`` and provide a log::

    class TestMyBus(bus.BusContract):
        @pytest.fixture
        def bus_factory(self, tmp_path: Path) -> bus.BusFactory:
            return lambda cluster_name="a": MyBus(tmp_path, cluster_name)

        async def compact(self, open_bus: port.Bus, topic: topics.Topic) -> None: ...

Rules for adapters: the log of every cluster is empty when a test starts; what the factory returns
is not entered yet and may be entered again after it was left. No test depends on speed: each wait
has the time limit ``records.DEADLINE_S``.
"""

import abc
import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port
from stromboli.shared.messages import log, scheduling
from stromboli.testkit import builders, log_reading, records
from stromboli.testkit.contracts import bus_epochs, bus_recreated
from stromboli.testkit.contracts.bus_epochs import BusFactory

__all__ = ["BusContract", "BusFactory"]

LARGE = topics.RECORD_BYTES * 3 // 4
TOO_LARGE = topics.RECORD_BYTES + 1
NODES = [builders.snapshot_of(builders.make_node(f"n{number}")) for number in range(6)]
LATER = [builders.snapshot_of(builders.make_node(f"later{number}")) for number in range(3)]


class BusContract(bus_epochs.EpochContract, bus_recreated.RecreationContract, abc.ABC):
    """Tests of the contract that ``stromboli.shared.bus.port`` states, one for each rule."""

    @pytest.fixture
    def bus_factory(self) -> BusFactory:
        """Creates connections; see the module."""
        raise NotImplementedError

    @abc.abstractmethod
    async def compact(self, open_bus: port.Bus, topic: topics.Topic) -> None:
        """Return when older records of overwritten keys of ``topic`` are removed."""

    @pytest.fixture
    async def open_bus(self, bus_factory: BusFactory) -> AsyncIterator[port.Bus]:
        async with bus_factory() as opened:
            yield opened

    # --- appending -------------------------------------------------------------------------

    async def test_a_topic_keeps_the_order_of_appends(self, open_bus: port.Bus) -> None:
        """This holds for drafts of one call or several, awaited or not."""
        writer = await open_bus.open_writer("monitor", "m1")
        first = await writer.append(*NODES[:3])
        rest = await asyncio.gather(*(writer.append(draft) for draft in NODES[3:]))
        stand = [*first, *(appended for (appended,) in rest)]
        read, _ = await records.read(open_bus, topics.NODES)
        assert records.keys(read) == [draft.key for draft in NODES]
        assert [record.offset for record in read] == [appended.offset for appended in stand]
        assert [record.id for record in read] == [appended.id for appended in stand]
        assert len({record.id for record in read}) == len(NODES)

    async def test_drafts_of_several_topics_go_in_one_call(self, open_bus: port.Bus) -> None:
        """``append`` returns results in the order of its arguments, whatever their topics."""
        writer = await open_bus.open_writer("controller", "c1")
        drafts = [
            records.phase_change("default/a"),
            records.outcome_of("d1"),
            records.phase_change("default/b"),
        ]
        stand = await writer.append(*drafts)
        read, _ = await records.read(open_bus, topics.BATCH_EVENTS, topics.OUTCOMES)
        by_id = {record.id: record for record in read}
        for draft, appended in zip(drafts, stand, strict=True):
            record = by_id[appended.id]
            assert (record.topic, record.key) == (draft.topic, draft.key)
            assert record.offset == appended.offset

    async def test_nothing_to_append_is_nothing(self, open_bus: port.Bus) -> None:
        writer = await open_bus.open_writer("monitor", "m1")
        assert await writer.append() == ()

    async def test_a_record_reads_as_it_was_written(self, open_bus: port.Bus) -> None:
        """Key, message, time, cause and trace are preserved; the id contains the writer's epoch."""
        writer = await open_bus.open_writer("controller", "c1")
        time = datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
        made = records.phase_change("ns/jöb ✓")
        draft = envelope.Draft(
            topic=made.topic,
            key=made.key,
            message=made.message,
            time=time,
            cause="scheduler/1/2",
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        await writer.append(draft)
        ((record,), _) = await records.read(open_bus, topics.BATCH_EVENTS)
        assert record.key == "ns/jöb ✓"
        assert envelope.decode(record) == draft.message
        assert (record.time, record.cause, record.traceparent) == (
            time,
            draft.cause,
            draft.traceparent,
        )
        assert record.epoch == writer.epoch
        assert record.id.startswith("controller/")
        assert record.headers["ce_source"] == f"/clusters/{record.cluster_name}/controller"

    async def test_a_tombstone_contains_uid_and_version(self, open_bus: port.Bus) -> None:
        writer = await open_bus.open_writer("monitor", "m1")
        node = builders.make_node("n1", version=7)
        await writer.append(builders.snapshot_of(node), builders.tombstone_of(node))
        read, _ = await records.read(open_bus, topics.NODES)
        assert read[-1].value is None
        assert envelope.decode(read[-1]) is None
        assert read[-1].headers["ce_objectuid"] == node.metadata.uid
        assert read[-1].headers["ce_objectversion"] == "7"

    async def test_a_large_record_passes(self, open_bus: port.Bus) -> None:
        """A record may have any size up to the limit, headers included; an object of 1.5 MB is far
        below it."""
        writer = await open_bus.open_writer("monitor", "m1")
        draft = _node_of(LARGE)
        await writer.append(draft)
        ((record,), _) = await records.read(open_bus, topics.NODES)
        assert envelope.decode(record) == draft.message

    async def test_a_record_over_the_limit_rejects_the_whole_append(
        self, open_bus: port.Bus
    ) -> None:
        writer = await open_bus.open_writer("monitor", "m1")
        with pytest.raises(errors.TooLargeError):
            await writer.append(NODES[0], _node_of(TOO_LARGE), NODES[1])
        await writer.append(NODES[2])
        read, _ = await records.read(open_bus, topics.NODES)
        assert records.keys(read) == [NODES[2].key]

    async def test_only_its_writer_appends_to_a_topic(self, open_bus: port.Bus) -> None:
        """A draft of another service is a programming error, and no draft of the call
        is appended.
        """
        writer = await open_bus.open_writer("controller", "c1")
        with pytest.raises(ValueError, match=r"cluster\.nodes"):
            await writer.append(records.phase_change(), NODES[0])
        read, _ = await records.read(open_bus, topics.NODES, topics.BATCH_EVENTS)
        assert read == []

    async def test_a_message_is_rejected_on_other_topics(self, open_bus: port.Bus) -> None:
        writer = await open_bus.open_writer("monitor", "m1")
        foreign = envelope.Draft(
            topic=topics.PODS, key="k", message=NODES[0].message, time=builders.NOON
        )
        with pytest.raises(ValueError, match=r"cluster\.pods"):
            await writer.append(foreign)

    async def test_every_service_may_append_dead_letters(self, open_bus: port.Bus) -> None:
        """Dead letters of one service never replace those of another, whatever their epochs."""
        one = await open_bus.open_writer("monitor", "m1")
        await open_bus.open_writer("scheduler", "s1")
        other = await open_bus.open_writer("scheduler", "s2")
        await other.append(records.dead_letter(topics.NODES))
        await one.append(records.dead_letter(topics.PODS))
        await other.append(records.dead_letter(topics.QUEUES))
        without_main = await open_bus.open_writer("history", "h1")
        await without_main.append(records.dead_letter(topics.JOBS))
        read, _ = await records.read(open_bus, topics.DEAD_LETTERS)
        expected = [topics.NODES.name, topics.PODS.name, topics.QUEUES.name, topics.JOBS.name]
        assert records.keys(read) == expected
        assert len({record.id for record in read}) == len(expected)

    # --- materializing ---------------------------------------------------------------------

    async def test_a_fold_of_nothing_is_caught_up(self, open_bus: port.Bus) -> None:
        read, positions = await records.read(open_bus, topics.PODS, topics.NODES)
        assert read == []
        assert positions == {topics.PODS.name: 0, topics.NODES.name: 0}

    async def test_a_materialization_is_caught_up_at_the_end_offset_of_its_start(
        self, open_bus: port.Bus
    ) -> None:
        """Every record acknowledged before is in the batches up to ``caught_up``, on every topic,
        and the positions are the next offsets, also after announcements of the writer."""
        writer = await open_bus.open_writer("monitor", "m1")
        stand = await writer.append(*NODES, builders.snapshot_of(builders.make_pod("p1")))
        read, positions = await records.read(open_bus, topics.NODES, topics.PODS, topics.QUEUES)
        assert len(read) == 7
        assert positions == {
            topics.NODES.name: stand[5].offset + 1,
            topics.PODS.name: stand[6].offset + 1,
            topics.QUEUES.name: 1,
        }

    async def test_a_fold_catches_up_while_records_keep_coming(self, open_bus: port.Bus) -> None:
        writer = await open_bus.open_writer("monitor", "m1")
        await writer.append(*NODES)

        async def keep_appending() -> None:
            while True:
                await writer.append(*LATER)

        appending = asyncio.create_task(keep_appending())
        try:
            read, _ = await records.read(open_bus, topics.NODES)
        finally:
            appending.cancel()
            await asyncio.gather(appending, return_exceptions=True)
        assert records.keys(read)[: len(NODES)] == [draft.key for draft in NODES]

    @pytest.mark.parametrize("is_urgent", [True, False], ids=["urgent", "not urgent"])
    async def test_a_materialization_continues_after_the_barrier(
        self, bus_factory: BusFactory, *, is_urgent: bool
    ) -> None:
        """It returns later records of this connection and of others."""
        wanted = [topics.NODES, topics.BATCH_EVENTS]
        async with (
            bus_factory() as here,
            bus_factory() as there,
            contextlib.aclosing(here.materialize(wanted, is_urgent=is_urgent)) as batches,
        ):
            await log_reading.until_caught_up(batches)
            monitor = await here.open_writer("monitor", "m1")
            await monitor.append(NODES[0])
            assert records.keys(await log_reading.next_records(batches, 1)) == [NODES[0].key]
            controller = await there.open_writer("controller", "c1")
            await controller.append(records.phase_change("default/j9"))
            assert records.keys(await log_reading.next_records(batches, 1)) == ["default/j9"]

    async def test_a_materialization_starts_at_a_given_position(self, open_bus: port.Bus) -> None:
        """Topics that ``start`` does not name are read from their beginning."""
        writer = await open_bus.open_writer("monitor", "m1")
        stand = await writer.append(*NODES, builders.snapshot_of(builders.make_pod("p1")))
        start = port.Position({topics.NODES.name: stand[4].offset})
        read, _ = await records.read(open_bus, topics.NODES, topics.PODS, start=start)
        assert sorted(records.keys(read)) == ["default/p1", NODES[4].key, NODES[5].key]

    async def test_a_materialization_continues_from_the_position_of_another(
        self, open_bus: port.Bus
    ) -> None:
        """No record is repeated or lost, and the materialization is caught up immediately."""
        writer = await open_bus.open_writer("monitor", "m1")
        await writer.append(*NODES)
        _, positions = await records.read(open_bus, topics.NODES)
        again, same = await records.read(open_bus, topics.NODES, start=port.Position(positions))
        assert (again, same) == ([], positions)
        await writer.append(*LATER)
        read, _ = await records.read(open_bus, topics.NODES, start=port.Position(positions))
        assert records.keys(read) == [draft.key for draft in LATER]

    async def test_no_record_is_lost_or_repeated_if_each_batch_is_read_by_another_reader(
        self, open_bus: port.Bus
    ) -> None:
        """The position of a batch covers its records and no others, on all topics."""
        writer = await open_bus.open_writer("monitor", "m1")
        pods = [builders.snapshot_of(builders.make_pod(f"p{number}")) for number in range(6)]
        for node, pod in zip(NODES, pods, strict=True):
            await writer.append(node, pod)
        wanted, start = (topics.NODES, topics.PODS, topics.SYNC), port.START
        read: list[envelope.Record] = []
        async with asyncio.timeout(records.DEADLINE_S):
            while len(read) < len(NODES) + len(pods) + 1:
                batches = open_bus.materialize(wanted, start)
                async with contextlib.aclosing(batches):
                    batch = await anext(it async for it in batches if it.records)
                read += batch.records
                start = batch.position
        for topic, drafts in ((topics.NODES, NODES), (topics.PODS, pods)):
            assert records.keys([it for it in read if it.topic == topic]) == [
                draft.key for draft in drafts
            ]

    async def test_compaction_keeps_the_last_record_of_each_key(self, open_bus: port.Bus) -> None:
        """A materialization over the gaps in offsets is in order and caught up."""
        writer = await open_bus.open_writer("monitor", "m1")
        node = builders.make_node("gone")
        changing = [builders.make_node("changing", version=version) for version in range(1, 21)]
        *_, last = await writer.append(*(builders.snapshot_of(made) for made in changing))
        await writer.append(builders.snapshot_of(node), builders.tombstone_of(node))
        await self.compact(open_bus, topics.NODES)
        read, positions = await records.read(open_bus, topics.NODES)
        offsets = [record.offset for record in read]
        assert offsets == sorted(set(offsets))
        assert len([record for record in read if record.key == "changing"]) < 20
        assert [record.offset for record in read if record.key == "changing"][-1] == last.offset
        assert all(record.value is None for record in read if record.key == "gone")
        assert positions[topics.NODES.name] > last.offset
        again, _ = await records.read(open_bus, topics.NODES, start=port.Position(positions))
        assert again == []

    # --- durability ------------------------------------------------------------------------

    async def test_acknowledged_records_exist_after_reopening(
        self, bus_factory: BusFactory
    ) -> None:
        async with bus_factory() as before:
            writer = await before.open_writer("monitor", "m1")
            stand = await writer.append(*NODES)
        async with bus_factory() as after:
            read, _ = await records.read(after, topics.NODES)
            assert [record.id for record in read] == [appended.id for appended in stand]
            successor = await after.open_writer("monitor", "m2")
            await successor.append(*LATER)
            read, _ = await records.read(after, topics.NODES)
        assert records.keys(read) == [draft.key for draft in (*NODES, *LATER)]

    async def test_an_append_to_a_closed_log_fails(self, bus_factory: BusFactory) -> None:
        """A request may outlive the log when a service ends; this is not an internal error."""
        async with bus_factory() as bus:
            writer = await bus.open_writer("monitor", "m1")
        with pytest.raises(errors.UnavailableError):
            await writer.append(*NODES)

    async def test_cells_share_no_topic(self, bus_factory: BusFactory) -> None:
        async with bus_factory("a") as here, bus_factory("b") as there:
            writer = await here.open_writer("monitor", "m1")
            await writer.append(*NODES)
            read, _ = await records.read(there, topics.NODES, topics.SYNC)
            assert read == []

    # --- consuming -------------------------------------------------------------------------

    async def test_a_consumer_gets_every_record_in_order(self, open_bus: port.Bus) -> None:
        """It gets existing and new records; several may be unfinished at the same time."""
        writer = await open_bus.open_writer("monitor", "m1")
        await writer.append(*NODES)
        async with open_bus.consume(topics.NODES, "g") as consumer:
            assert records.keys(await log_reading.take(consumer, 6)) == [
                draft.key for draft in NODES
            ]
            await writer.append(*LATER)
            assert records.keys(await log_reading.take(consumer, 3)) == [
                draft.key for draft in LATER
            ]

    async def test_a_consumer_gets_records_that_open_a_writer(self, open_bus: port.Bus) -> None:
        """The group processes every record of the topic."""
        writer = await open_bus.open_writer("controller", "c1")
        await writer.append(records.outcome_of("d1"))
        async with open_bus.consume(topics.OUTCOMES, "g") as consumer:
            opened, decision = await log_reading.take(consumer, 2)
        assert (opened.key, decision.key) == (log.OPENED_KEY, "d1")

    async def test_a_consumer_restarts_at_the_lowest_unfinished_record(
        self, bus_factory: BusFactory
    ) -> None:
        """Records that were finished after an unfinished one are delivered again: at least once."""
        async with bus_factory() as before:
            writer = await before.open_writer("monitor", "m1")
            await writer.append(*NODES)
            async with before.consume(topics.NODES, "g") as consumer:
                taken = await log_reading.take(consumer, 5)
                for done in (0, 1, 3):
                    consumer.acknowledge(taken[done])
                assert consumer.lowest_unfinished == taken[2].offset
        async with bus_factory() as after, after.consume(topics.NODES, "g") as consumer:
            assert consumer.lowest_unfinished == taken[2].offset
            assert records.keys(await log_reading.take(consumer, 4)) == [
                draft.key for draft in NODES[2:]
            ]

    async def test_finished_records_are_not_consumed_again(self, open_bus: port.Bus) -> None:
        """This holds for any order in which records are finished, and if one is finished twice."""
        writer = await open_bus.open_writer("monitor", "m1")
        stand = await writer.append(*NODES)
        async with open_bus.consume(topics.NODES, "g") as consumer:
            for record in reversed(await log_reading.take(consumer, 6)):
                consumer.acknowledge(record)
                consumer.acknowledge(record)
            assert consumer.lowest_unfinished == stand[-1].offset + 1
        await writer.append(*LATER)
        async with open_bus.consume(topics.NODES, "g") as consumer:
            assert records.keys(await log_reading.take(consumer, 3)) == [
                draft.key for draft in LATER
            ]

    async def test_a_replaced_consumer_cannot_move_the_offset_of_the_group(
        self, open_bus: port.Bus
    ) -> None:
        """A paused process resumes after its successor started: it neither repeats records that the
        successor finished nor skips records that the successor has not finished, and it is notified
        that it was replaced.
        """
        writer = await open_bus.open_writer("monitor", "m1")
        await writer.append(*NODES)
        async with open_bus.consume(topics.NODES, "g") as paused:
            old = await log_reading.take(paused, 6)
            async with open_bus.consume(topics.NODES, "g") as successor:
                for record in (await log_reading.take(successor, 6))[:2]:
                    successor.acknowledge(record)
                for record in old:
                    paused.acknowledge(record)
                with pytest.raises(errors.ReplacedError):
                    await log_reading.take(paused, 1)
        async with open_bus.consume(topics.NODES, "g") as consumer:
            taken = await log_reading.take(consumer, 4)
        assert records.keys(taken) == [draft.key for draft in NODES[2:]]

    async def test_a_consumer_of_another_group_replaces_no_consumer(
        self, open_bus: port.Bus
    ) -> None:
        writer = await open_bus.open_writer("monitor", "m1")
        async with open_bus.consume(topics.NODES, "g") as one:
            async with open_bus.consume(topics.NODES, "other"):
                await writer.append(NODES[0])
            assert records.keys(await log_reading.take(one, 1)) == [NODES[0].key]

    async def test_an_empty_topic_has_nothing_unfinished(self, open_bus: port.Bus) -> None:
        async with open_bus.consume(topics.NODES, "g") as consumer:
            assert consumer.lowest_unfinished == 0

    async def test_groups_do_not_take_from_each_other(self, open_bus: port.Bus) -> None:
        """Offsets are separate for each group, and for each topic of a group."""
        writer = await open_bus.open_writer("monitor", "m1")
        await writer.append(NODES[0], builders.snapshot_of(builders.make_pod("p1")))
        for topic, group, key in (
            (topics.NODES, "g", NODES[0].key),
            (topics.NODES, "h", NODES[0].key),
            (topics.PODS, "g", "default/p1"),
        ):
            async with open_bus.consume(topic, group) as consumer:
                (record,) = await log_reading.take(consumer, 1)
                consumer.acknowledge(record)
            assert record.key == key

    async def test_a_fenced_record_does_not_block_a_consumer(self, open_bus: port.Bus) -> None:
        """A consumer does not have to finish a fenced record."""
        paused = await open_bus.open_writer("controller", "c1")
        successor = await open_bus.open_writer("controller", "c2")
        await successor.append(records.phase_change("default/a"))
        await paused.append(records.phase_change("default/zombie"))
        (end,) = await successor.append(records.phase_change("default/b"))
        async with open_bus.consume(topics.BATCH_EVENTS, "g") as consumer:
            for record in await log_reading.take(consumer, 2):
                consumer.acknowledge(record)
            assert consumer.lowest_unfinished == end.offset + 1

    # --- last ------------------------------------------------------------------------------

    async def test_last_is_the_newest_record(self, open_bus: port.Bus) -> None:
        writer = await open_bus.open_writer("monitor", "m1")
        assert await open_bus.last_record(topics.NODES) is None
        for draft in NODES[:2]:
            (appended,) = await writer.append(draft)
            record = await open_bus.last_record(topics.NODES)
            assert record is not None
            assert (record.id, record.offset) == (appended.id, appended.offset)

    async def test_last_of_a_main_topic_may_open_a_writer(self, open_bus: port.Bus) -> None:
        writer = await open_bus.open_writer("scheduler", "s1")
        record = await open_bus.last_record(topics.DECISIONS)
        assert record is not None
        assert (record.offset, record.key) == (writer.opened_at, log.OPENED_KEY)

    async def test_an_open_log_is_reachable(self, open_bus: port.Bus) -> None:
        assert await open_bus.is_reachable()

    async def test_every_topic_can_be_materialized(self, open_bus: port.Bus) -> None:
        """Opening a connection creates all topics, also those of other writers."""
        read, positions = await records.read(open_bus, *topics.ALL)
        assert read == []
        assert positions == {topic.name: 0 for topic in topics.ALL}

    async def test_the_id_of_a_decision_is_known_when_it_is_acknowledged(
        self, open_bus: port.Bus
    ) -> None:
        """The id that ``append`` returns is the id that readers see."""
        writer = await open_bus.open_writer("scheduler", "s1")
        decided = scheduling.StatementDecided(pod_group="default/g1", pod_group_uid="u", session=1)
        (appended,) = await writer.append(
            envelope.Draft(
                topic=topics.DECISIONS, key="default/g1", message=decided, time=builders.NOON
            )
        )
        record = await open_bus.last_record(topics.DECISIONS)
        assert record is not None
        assert record.id == appended.id


def _node_of(size: int) -> envelope.Draft:
    """A draft whose value is slightly larger than ``size`` bytes and cannot be
    compressed below it.
    """
    return builders.snapshot_of(
        builders.make_node("large", labels={"x": "0123456789abcdef" * (size // 16)})
    )
