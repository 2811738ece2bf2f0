"""What the embedded log guarantees beyond the contract: durability, one process, retention."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from stromboli.embedded.bus import EmbeddedBus, log
from stromboli.shared import envelope, errors, topics
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, records

WRITER = """
import asyncio, sys
from pathlib import Path
from stromboli.embedded.bus import EmbeddedBus
from stromboli.testkit import builders

async def main():
    async with EmbeddedBus(Path(sys.argv[1])) as bus:
        writer = await bus.open_writer("monitor", "killed")
        for number in range(10_000):
            (stands,) = await writer.append(builders.snapshot_of(builders.make_node(f"n{number}")))
            sys.stdout.write(f"{stands.offset} {stands.id}\\n")
            sys.stdout.flush()

asyncio.run(main())
"""


WORKER = """
import asyncio, os, signal, sys
from pathlib import Path
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared import topics

async def main():
    async with EmbeddedBus(Path(sys.argv[1])) as bus, bus.consume(topics.NODES, "g") as work:
        async for record in work:
            if record.offset == 3:
                for _ in range(2):  # behind the commit on its way, and the one that follows it
                    await bus.is_reachable()
                os.kill(os.getpid(), signal.SIGKILL)
            work.acknowledge(record)

asyncio.run(main())
"""


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = builders.NOON

    def __call__(self) -> datetime:
        return self.now


async def test_acknowledged_writes_survive_kill_9(tmp_path: Path) -> None:
    """Killed in the middle of appending, right behind an acknowledgement."""
    path = tmp_path / "log"
    acknowledged = []
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    async for line in process.stdout:
        acknowledged.append(line.decode().split())
        if len(acknowledged) == 50:
            process.kill()
            break
    await process.wait()
    async with EmbeddedBus(path) as bus:
        read, _ = await records.read(bus, topics.NODES)
        assert [[str(record.offset), record.id] for record in read][:50] == acknowledged
        successor = await bus.open_writer("monitor", "next")
        (stands,) = await successor.append(builders.snapshot_of(builders.make_node("later")))
        assert stands.offset == read[-1].offset + 2, "behind what announces the new writer"


async def test_a_log_belongs_to_one_process(tmp_path: Path) -> None:
    """The second one gets an error that names the first; whether it waits is its decision."""
    path = tmp_path / "log"
    open_it = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from stromboli.embedded.bus import EmbeddedBus\n"
        "asyncio.run(EmbeddedBus(Path(sys.argv[1])).__aenter__())\n"
    )
    command = [sys.executable, "-c", open_it, str(path)]
    async with EmbeddedBus(path):
        second = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False
        )
        assert "PermanentError" in second.stderr
        assert "has it open: stop that process, or use another folder" in second.stderr


async def test_services_share_one_instance(tmp_path: Path) -> None:
    """It stays open until the last one leaves."""
    bus = EmbeddedBus(tmp_path / "log")
    async with bus:
        async with bus:
            writer = await bus.open_writer("monitor", "m1")
        await writer.append(builders.snapshot_of(builders.make_node()))
        assert await bus.is_reachable()
    assert not await bus.is_reachable()


async def test_a_closed_log_is_an_error(tmp_path: Path) -> None:
    """To who writes and to who waits for more."""
    bus = EmbeddedBus(tmp_path / "log")
    async with bus:
        writer = await bus.open_writer("monitor", "m1")
        batches = bus.materialize([topics.NODES])
        assert (await anext(batches)).caught_up
        waiting = asyncio.ensure_future(anext(batches))
        await writer.append(builders.snapshot_of(builders.make_pod()))
    with pytest.raises(errors.UnavailableError):
        await waiting
    with pytest.raises(errors.UnavailableError):
        await writer.append(builders.snapshot_of(builders.make_node()))


async def test_a_foreign_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("somebody's diary, which is not to be overwritten", encoding="utf-8")
    with pytest.raises(errors.PermanentError, match="not a database"):
        async with EmbeddedBus(path):
            pass


async def test_old_records_are_removed_and_offsets_never_decrease(tmp_path: Path) -> None:
    """Fourteen days are kept on topics of events; compacted ones do not age."""
    clock = Clock()
    path = tmp_path / "log"
    async with EmbeddedBus(path, clock=clock) as bus:
        controller = await bus.open_writer("controller", "c1")
        monitor = await bus.open_writer("monitor", "m1")
        await monitor.append(builders.snapshot_of(builders.make_node()))
        await controller.append(*(records.phase_change(f"default/j{n}") for n in range(3)))
        clock.now += timedelta(days=13)
        await controller.append(records.phase_change("default/young"))
        clock.now += timedelta(days=2)
    async with EmbeddedBus(path, clock=clock) as bus:
        read, positions = await records.read(bus, topics.BATCH_EVENTS, topics.NODES)
        assert sorted(records.keys(read)) == ["default/young", "n1"]
        assert positions[topics.BATCH_EVENTS.name] == 5
        clock.now += timedelta(days=30)
        await bus.compact()
        read, positions = await records.read(bus, topics.BATCH_EVENTS)
        assert (read, positions) == ([], {topics.BATCH_EVENTS.name: 5})
        assert await bus.last_record(topics.BATCH_EVENTS) is None
    async with EmbeddedBus(path, clock=clock) as bus:
        controller = await bus.open_writer("controller", "c2")
        (stands,) = await controller.append(records.phase_change())
        assert stands.offset == 6, "behind what announces the new writer"


async def test_tombstones_stay_a_day(tmp_path: Path) -> None:
    """So that a materialization in progress receives them; a barrier after the last one
    is valid.
    """
    clock = Clock()
    async with EmbeddedBus(tmp_path / "log", clock=clock) as bus:
        writer = await bus.open_writer("monitor", "m1")
        node = builders.make_node()
        await writer.append(builders.snapshot_of(node), builders.tombstone_of(node))
        clock.now += timedelta(milliseconds=topics.COMPACTION_LAG_MS + 1)
        await bus.compact()
        read, positions = await records.read(bus, topics.NODES)
        assert [record.value for record in read] == [None]
        clock.now += timedelta(days=1, seconds=1)
        await bus.compact()
        assert await records.read(bus, topics.NODES) == ([], positions)


async def test_a_compacted_topic_is_bounded(tmp_path: Path) -> None:
    """It is swept when as much was appended as was kept, and no less than a thousand."""
    clock = Clock()
    async with EmbeddedBus(tmp_path / "log", clock=clock) as bus:
        writer = await bus.open_writer("monitor", "m1")
        drafts = [builders.snapshot_of(builders.make_node(f"n{n}")) for n in range(100)]
        for _ in range(25):
            await writer.append(*drafts)
            clock.now += timedelta(milliseconds=topics.COMPACTION_LAG_MS)
        read, _ = await records.read(bus, topics.NODES)
        assert len(read) < 1100


async def test_compaction_keeps_what_readers_may_not_have_read_yet(tmp_path: Path) -> None:
    """The copies of the history are made a second later: a version that compaction removed before
    is in no copy, and the session that had read it cannot be replayed."""
    clock = Clock()
    async with EmbeddedBus(tmp_path / "log", clock=clock) as bus:
        writer = await bus.open_writer("monitor", "m1")
        versions = [builders.make_node("n1", version=number) for number in range(1, 4)]
        await writer.append(*map(builders.snapshot_of, versions))
        clock.now += timedelta(milliseconds=topics.COMPACTION_LAG_MS)
        await bus.compact()
        read, _ = await records.read(bus, topics.NODES)
        assert len(read) == 3
        clock.now += timedelta(milliseconds=1)
        await bus.compact()
        read, _ = await records.read(bus, topics.NODES)
        assert len(read) == 1


async def test_a_commit_survives_kill_9(tmp_path: Path) -> None:
    """Finished work is committed as it is finished, not only when a group leaves."""
    path = tmp_path / "log"
    async with EmbeddedBus(path) as bus:
        writer = await bus.open_writer("monitor", "m1")
        await writer.append(*(builders.snapshot_of(builders.make_node(f"n{n}")) for n in range(5)))
    killed = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", WORKER, str(path)], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    async with EmbeddedBus(path) as bus, bus.consume(topics.NODES, "g") as consumer:
        assert consumer.lowest_unfinished == 3


async def test_a_large_topic_is_read_page_by_page(tmp_path: Path) -> None:
    """Nothing twice and nothing missing, however many or large the records are."""
    async with EmbeddedBus(tmp_path / "log") as bus:
        writer = await bus.open_writer("monitor", "m1")
        small = [builders.snapshot_of(builders.make_node(f"n{n}")) for n in range(2500)]
        large = [
            builders.snapshot_of(builders.make_pod(f"p{n}", labels={"x": "x" * 5 * 1024 * 1024}))
            for n in range(8)
        ]
        await writer.append(*small)
        for draft in large:
            await writer.append(draft)
        sizes = []
        read: list[envelope.Record] = []
        async with contextlib.aclosing(bus.materialize([topics.NODES, topics.PODS])) as batches:
            async for batch in batches:
                sizes.append(sum(len(record.value or b"") for record in batch.records))
                read += batch.records
                if batch.caught_up:
                    break
    assert records.keys(read) == [draft.key for draft in (*small, *large)]
    assert max(sizes) < 24 * 1024 * 1024


async def test_a_record_takes_little_more_disk_than_its_bytes(tmp_path: Path) -> None:
    """Not a page of its own: that made a job take three times its bytes."""
    path, size, count = tmp_path / "log.db", 1300, 400
    opened = log.Log(path, "default", runtime.utc_now)
    await opened.open()
    for number in range(count):
        record = log.PendingRecord(topics.BATCH_EVENTS, f"k{number}", lambda _: ({}, b"x" * size))
        await opened.append([record])
    await opened.close()
    assert path.stat().st_size < 1.5 * count * size
