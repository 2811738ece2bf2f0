"""What fault injection does, and what it never does: no record is lost or reordered within its
topic.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.embedded.fault_injection import FaultRates, FaultyBus, FaultyCluster
from stromboli.shared import envelope, errors, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import materialization, port
from stromboli.testkit import builders, objects, records

CONFIG_MAPS = kinds.CONFIG_MAPS
NONE = FaultRates(
    longest_delay_s=0, repeat=0, closed=0, expired=0, conflict=0, unavailable=0, lost=0, cut=0
)
NODES = [builders.snapshot_of(builders.make_node(f"n{number}")) for number in range(30)]
PODS = [builders.snapshot_of(builders.make_pod(f"p{number}")) for number in range(30)]
OFFSETS = range(1, 31)
"""Of the records of a topic: before them is what announces their writer, which is no message."""


def rates(**chances: float) -> FaultRates:
    """Only this fault."""
    return FaultRates(**{field: getattr(NONE, field) for field in NONE.__struct_fields__} | chances)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EmbeddedBus]:
    """A log with nodes and pods, alternating."""
    async with EmbeddedBus(tmp_path / "log") as bus:
        writer = await bus.open_writer("monitor", "m1")
        for node, pod in zip(NODES, PODS, strict=True):
            await writer.append(node, pod)
        yield bus


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(tmp_path / "cluster") as opened:
        yield opened


def of(topic: topics.Topic, read: list[envelope.Record]) -> list[int]:
    return [record.offset for record in read if record.topic == topic]


def comes_in_order(offsets: list[int]) -> bool:
    """Whether each record follows the one before it in the log, or is a step back to one that was
    there already."""
    expected, seen = OFFSETS.start, -1
    for offset in offsets:
        if offset != expected and offset > seen:
            return False
        expected, seen = offset + 1, max(seen, offset)
    return True


# --- the log -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
async def test_a_topic_keeps_its_order_with_repetitions(log: EmbeddedBus, seed: int) -> None:
    """Everything is available at the barrier; a repeated record is followed by its successors."""
    with_faults = FaultyBus(log, seed, rates(repeat=0.5))
    read, positions = await records.read(with_faults, topics.NODES, topics.PODS)
    for topic in (topics.NODES, topics.PODS):
        assert set(of(topic, read)) == set(OFFSETS)
        assert comes_in_order(of(topic, read))
        assert positions[topic.name] == OFFSETS.stop


async def test_records_are_repeated_and_reordered(log: EmbeddedBus) -> None:
    """Disorder that changes nothing would prove nothing."""
    plain, _ = await records.read(log, topics.NODES, topics.PODS)
    seen = []
    for seed in range(10):
        with_faults = FaultyBus(log, seed, rates(repeat=0.5))
        read, _ = await records.read(with_faults, topics.NODES, topics.PODS)
        seen.append([record.key for record in read])
    assert any(len(keys) > len(plain) for keys in seen)
    assert len({tuple(keys) for keys in seen}) == 10


@pytest.mark.parametrize("seed", range(10))
async def test_positions_never_pass_delayed_records(log: EmbeddedBus, seed: int) -> None:
    """A materialization that continues from them receives everything that was delayed."""
    with_faults = FaultyBus(log, seed, rates(repeat=0.3))
    known: set[tuple[str, int]] = set()
    batches = with_faults.materialize([topics.NODES, topics.PODS])
    async with contextlib.aclosing(batches):
        async for batch in batches:
            known |= {(record.topic.name, record.offset) for record in batch.records}
            for name, position in batch.positions.items():
                assert {(name, offset) for offset in range(OFFSETS.start, position)} <= known
            if batch.caught_up:
                break


@pytest.mark.parametrize("seed", range(5))
async def test_consumed_records_are_repeated_until_done(log: EmbeddedBus, seed: int) -> None:
    """Repeated records may be finished again, or not: the first time counts."""
    with_faults = FaultyBus(log, seed, rates(repeat=0.3))
    given: list[envelope.Record] = []
    async with with_faults.consume(topics.NODES, "g") as consumer:
        async for record in consumer:
            given.append(record)
            consumer.acknowledge(record)
            if record.offset == OFFSETS[-1]:
                break
        assert consumer.lowest_unfinished == OFFSETS.stop
    assert set(of(topics.NODES, given)) == set(OFFSETS)
    assert comes_in_order(of(topics.NODES, given))


async def test_readers_are_interrupted_only_after_what_they_read(log: EmbeddedBus) -> None:
    """So a reader that resumes there reaches the end, however often this happens."""
    with_faults = FaultyBus(log, 1, rates(cut=0.5))
    read: list[envelope.Record] = []
    reported: list[str | None] = []
    batches = materialization.materialize(
        with_faults, [topics.NODES], lambda _, problem: reported.append(problem), "f"
    )
    async with contextlib.aclosing(batches):
        async for batch in batches:
            read += batch.records
            if batch.positions[topics.NODES.name] == OFFSETS.stop:
                break
    assert of(topics.NODES, read) == list(OFFSETS)
    assert len([problem for problem in reported if problem is not None]) > 1
    given: set[int] = set()
    while len(given) < 30:
        with contextlib.suppress(errors.UnavailableError):
            async with with_faults.consume(topics.NODES, "g") as consumer:
                async for record in consumer:
                    given.add(record.offset)
                    consumer.acknowledge(record)
                    if len(given) == 30:
                        break


@pytest.mark.parametrize(
    ("chances", "stands"), [({"unavailable": 1.0}, False), ({"lost": 1.0}, True)], ids=str
)
async def test_a_failed_append_may_be_stored(
    log: EmbeddedBus, chances: dict[str, float], *, stands: bool
) -> None:
    """And so may what opens a writer."""
    before = await log.last_record(topics.SYNC)
    with pytest.raises(errors.UnavailableError):
        await FaultyBus(log, 1, rates(**chances)).open_writer("monitor", "m2")
    assert (await log.last_record(topics.SYNC) != before) == stands


async def test_fenced_records_remain_fenced(log: EmbeddedBus) -> None:
    """And the topic's writer can see it."""
    paused = await log.open_writer("controller", "c1")
    successor = await log.open_writer("controller", "c2")
    await successor.append(records.phase_change("default/a"))
    await paused.append(records.phase_change("default/zombie"))
    await successor.append(records.phase_change("default/b"))
    fenced: list[envelope.Record] = []
    received: list[envelope.Record] = []
    batches = FaultyBus(log, 1, rates(repeat=0.5)).materialize([topics.BATCH_EVENTS])
    async with contextlib.aclosing(batches):
        async for batch in batches:
            received += batch.records
            fenced += batch.fenced
            if batch.caught_up:
                break
    assert set(records.keys(received)) == {"default/a", "default/b"}
    assert records.keys(fenced) == ["default/zombie"]


@pytest.mark.parametrize("seed", range(10))
async def test_a_materialization_from_any_position_accepts_earlier_announcements(
    log: EmbeddedBus, seed: int
) -> None:
    """An announcement is hidden from readers: a position behind it has its epoch all the same."""
    for successor in ("m2", "m3"):
        writer = await log.open_writer("monitor", successor)
        await writer.append(*(NODES[:3]))
    wanted = [topics.NODES]
    batches = FaultyBus(log, seed, rates()).materialize(wanted)
    async with contextlib.aclosing(batches):
        async for batch in batches:
            rest, _ = await records.read(log, *wanted, start=batch.position)
            end = OFFSETS.stop + 2 * 4  # each successor announced itself and appended three
            expected = set(range(batch.positions[topics.NODES.name], end)) - {31, 35}
            assert set(of(topics.NODES, rest)) >= expected
            if batch.caught_up:
                break


async def test_delays_are_slept_by_the_sleep_that_was_given(log: EmbeddedBus) -> None:
    """So that a test in virtual time waits for nothing."""
    slept: list[float] = []

    async def sleep(duration_s: float) -> None:
        slept.append(duration_s)

    with_faults = FaultyBus(log, 1, rates(longest_delay_s=1000), sleep)
    read, _ = await records.read(with_faults, topics.NODES, topics.PODS)
    assert len(read) == 60
    assert max(slept) > 100


async def test_a_closed_log_is_reported(tmp_path: Path) -> None:
    bus = EmbeddedBus(tmp_path / "log")
    async with bus:
        batches: AsyncIterator[port.Batch] = FaultyBus(bus, 1, NONE).materialize([topics.NODES])
        assert (await anext(batches)).caught_up
    with pytest.raises(errors.UnavailableError):
        await anext(batches)


# --- the cluster -------------------------------------------------------------------------------

Call = Callable[[FaultyCluster], Coroutine[Any, Any, Any]]
TESTING = objects.operations(("test", "/data/a", "1"), ("replace", "/data/a", "2"))


async def _create(cluster: FaultyCluster) -> None:
    await cluster.create(CONFIG_MAPS, "default", objects.config_map("new"))


async def _patch(cluster: FaultyCluster) -> None:
    await cluster.patch(CONFIG_MAPS, "default", "c", TESTING, patch_type="json")


async def _delete(cluster: FaultyCluster) -> None:
    await cluster.delete(CONFIG_MAPS, "default", "c")


async def _bind(cluster: FaultyCluster) -> None:
    await cluster.bind("default", "p", uid="", node="n1", annotations={})


async def _version(cluster: EmbeddedCluster) -> str:
    return (await cluster.list(CONFIG_MAPS)).resource_version


@pytest.mark.parametrize("call", [_create, _patch, _delete, _bind])
@pytest.mark.parametrize(("kind_of_trouble", "takes_effect"), [("unavailable", 0), ("lost", 1)])
async def test_a_call_that_fails_took_effect_or_not(
    cluster: EmbeddedCluster, call: Call, kind_of_trouble: str, takes_effect: int
) -> None:
    """As with a real server, the caller cannot know which."""
    await cluster.create(CONFIG_MAPS, "default", objects.config_map("c", a="1"))
    await cluster.create(kinds.PODS, "default", objects.pod("p"))
    before = int(await _version(cluster))
    with pytest.raises(errors.UnavailableError):
        await call(FaultyCluster(cluster, 1, rates(**{kind_of_trouble: 1})))
    assert int(await _version(cluster)) == before + takes_effect


async def test_only_writes_with_a_precondition_get_conflicts(cluster: EmbeddedCluster) -> None:
    """Nothing of it counts; and a patch without a test is never refused so."""
    await cluster.create(CONFIG_MAPS, "default", objects.config_map("c", a="1"))
    with_faults = FaultyCluster(cluster, 1, rates(conflict=1))
    before = await _version(cluster)
    with pytest.raises(errors.ConflictError):
        await _patch(with_faults)
    version = objects.merge(metadata={"resourceVersion": before}, data={"a": "3"})
    with pytest.raises(errors.ConflictError):
        await with_faults.patch(CONFIG_MAPS, "default", "c", version, patch_type="merge")
    assert await _version(cluster) == before
    plain = objects.merge(data={"a": "4"})
    await with_faults.patch(CONFIG_MAPS, "default", "c", plain, patch_type="merge")
    await _delete(with_faults)


async def test_a_watch_expires_or_ends_early(cluster: EmbeddedCluster) -> None:
    version = await _version(cluster)
    for name in ("a", "b"):
        await cluster.create(CONFIG_MAPS, "default", objects.config_map(name))
    expiring = FaultyCluster(cluster, 1, rates(expired=1))
    with pytest.raises(errors.ExpiredError):
        await anext(expiring.watch(CONFIG_MAPS, version))
    closing = FaultyCluster(cluster, 1, rates(closed=1))
    assert len([event async for event in closing.watch(CONFIG_MAPS, version)]) == 1


async def test_the_seed_decides_faults_independent_of_the_order_of_calls(
    cluster: EmbeddedCluster,
) -> None:
    """The same call for the same object has the same fault, whatever else happens."""

    async def outcomes(names: list[str], seed: int) -> dict[str, str]:
        with_faults = FaultyCluster(cluster, seed, rates(unavailable=0.5))
        met = {}
        for name in names:
            try:
                await with_faults.get(CONFIG_MAPS, "default", name)
            except errors.ExternalError as error:
                met[name] = type(error).__name__
        return met

    names = [f"c{number}" for number in range(20)]
    first = await outcomes(names, 1)
    assert first == await outcomes(names[::-1], 1)
    assert first != await outcomes(names, 2)
    assert set(first.values()) == {"UnavailableError", "NotFoundError"}


async def test_tasks_of_a_fold_end_with_it(log: EmbeddedBus) -> None:
    """No task is left running when a reader ends."""
    before = asyncio.all_tasks()
    batches = FaultyBus(log, 1).materialize([topics.NODES])
    await anext(batches)
    await batches.aclose()
    assert asyncio.all_tasks() == before
