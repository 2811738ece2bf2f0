"""The restart of the scheduler in a large cluster: ``python -m bench.restart``.

A real Kafka broker with the topics of a cluster (``restart_cluster``: by default 4,888 nodes,
140,000 pods, 87,031 jobs), and the scheduler as a separate process with its default settings. A
client replaces the monitor, and repeats its sync markers as often as the monitor does.

A first scheduler reads the topics and explains the waiting jobs; it is stopped as by a supervisor.
Then it is started again. Together with the start of the process, a job of one pod appears. Measured
in seconds from the start of the process: ``ready_s`` until ``/readyz`` succeeds, and ``decided_s``
until the decision that binds the pod is on the topic. ``cpu_s`` is the CPU time of the process
until then; memory is that of the process after ``SETTLED_AFTER_S``, with its peak.

The last line of stdout is the result as one JSON object; it also goes to ``bench/restart.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import uvloop

from bench import restart_cluster, scale
from stromboli.monitor.settings import MonitorSettings
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.shared import envelope, topics
from stromboli.shared.bus import kafka, port
from stromboli.shared.messages import cluster
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, real_system
from stromboli.testkit.parts import tools
from stromboli.testkit.parts.kafka import Kafka

AT_ONCE = 2_000
SETTLED_AFTER_S = 10.0
WITHIN_S = 600.0
PROBE_S = 0.5
GOALS = {"decided_s": 15.0, "rss_mib": 700, "peak_to_rss": 1.5}
RAW = Path(__file__).with_name("restart.json")


class Scheduler(real_system.Service):
    """The scheduler, with enough time to start on a busy machine. Its modules are compiled before
    the start, as in its image."""

    ready_timeout_s = WITHIN_S

    async def compile(self) -> None:
        """Write the bytecode files."""
        imports = ["-c", "import stromboli.scheduler.__main__"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *imports, env={**os.environ, **self._bytecode}
        )
        assert await process.wait() == 0

    async def is_ready(self) -> bool:
        """Probe at most every ``PROBE_S`` seconds, as a kubelet may: each answer takes CPU."""
        await asyncio.sleep(PROBE_S)
        return await super().is_ready()

    def environment(self) -> dict[str, str]:
        """The settings, and where Python finds the bytecode files."""
        return {**super().environment(), **self._bytecode}

    @property
    def _bytecode(self) -> dict[str, str]:
        folder = str(self.state / "bytecode")
        return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}


class Monitor:
    """Writes the records of the monitor."""

    def __init__(self, writer: port.Writer) -> None:
        self._writer = writer
        self._ends: dict[str, int] = {}
        self._versions = itertools.count(10**9)

    async def publish(self, drafts: Sequence[envelope.Draft]) -> None:
        """Append these records."""
        appended = await self._writer.append(*drafts)
        for draft, at in zip(drafts, appended, strict=True):
            self._ends[draft.topic.name] = at.offset + 1

    async def see(self, *objects: Any) -> None:
        """Append the records of further objects."""
        versions = self._versions
        await self.publish([restart_cluster.draft_of(it, next(versions)) for it in objects])

    @contextlib.asynccontextmanager
    async def marking(self) -> AsyncIterator[None]:
        """Append the sync markers of all kinds regularly during the block."""
        repeated = asyncio.create_task(self._mark())
        try:
            yield
        finally:
            repeated.cancel()
            await asyncio.wait([repeated])

    async def _mark(self) -> None:
        while True:
            await self._writer.append(*map(self._marker, cluster_cache.KINDS))
            await asyncio.sleep(MonitorSettings().heartbeat_s)

    def _marker(self, kind: Any) -> envelope.Draft:
        message = cluster.KindSynced(
            kind=kind.plural,
            state="synced",
            resource_version="1",
            at=builders.NOON,
            position=self._ends.get(topics.SNAPSHOTS[kind].name, 0),
        )
        return envelope.Draft(
            topic=topics.SYNC, key=kind.plural, message=message, time=builders.NOON
        )


async def fill(monitor: Monitor, size: restart_cluster.Size) -> dict[str, Any]:
    """Publish the cluster; return the number of records and the seconds."""
    begun, count = time.perf_counter(), 0
    drafts = restart_cluster.drafts(size)
    while some := list(itertools.islice(drafts, AT_ONCE)):
        await monitor.publish(some)
        count += len(some)
    return {"records": count, "s": round(time.perf_counter() - begun, 1)}


async def next_message(bus: port.Bus, topic: topics.Topic, after: int, key: str) -> Any:
    """The first message with this key from an offset of the topic on."""
    start = port.Position({topic.name: after})
    async with contextlib.aclosing(bus.materialize((topic,), start)) as batches:
        async for batch in batches:
            for record in batch.records:
                if record.key == key:
                    return envelope.decode(record)
    raise AssertionError("a materialization does not end")


async def end_of(bus: port.Bus, topic: topics.Topic) -> int:
    """The end offset of a topic."""
    newest = await bus.last_record(topic)
    return 0 if newest is None else newest.offset + 1


def cpu_s(service: real_system.Service) -> float:
    """CPU seconds that the process has used."""
    stat = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


async def started(
    bus: port.Bus, monitor: Monitor, scheduler: real_system.Service, name: str
) -> dict[str, Any]:
    """Start the scheduler, and measure until it has bound a new job of this name."""
    group, pod = restart_cluster.new_job(name)
    after = await end_of(bus, topics.DECISIONS)
    begun = time.perf_counter()

    async def ready_s() -> float:
        await scheduler.start()
        return time.perf_counter() - begun

    starting = asyncio.create_task(ready_s())
    await monitor.see(group, pod)
    async with asyncio.timeout(WITHIN_S):
        decided = await next_message(bus, topics.DECISIONS, after, group.metadata.key)
        took_s, used_s = time.perf_counter() - begun, cpu_s(scheduler)
        ready = await starting
    assert isinstance(decided, messages.StatementDecided)
    (bind,) = decided.binds
    await asyncio.sleep(SETTLED_AFTER_S)
    return {
        "ready_s": round(ready, 2),
        "decided_s": round(took_s, 2),
        "cpu_s": round(used_s, 2),
        "rss_mib": scale.memory(scheduler),
        "node": bind.node,
        "load": round(os.getloadavg()[0], 1),
    }


async def explained(bus: port.Bus, size: restart_cluster.Size) -> None:
    """Wait until each waiting job has an explanation."""
    waiting = sum(restart_cluster.phase_of(number) == "Inqueue" for number in range(size.jobs))
    found: set[str] = set()
    async with contextlib.aclosing(bus.materialize((topics.EXPLANATIONS,))) as batches:
        async for batch in batches:
            found.update(
                record.key
                for record in batch.records
                if record.value is not None
                and isinstance(envelope.decode(record), messages.PodGroupExplained)
            )
            if len(found) >= waiting:
                return


async def measured(
    bus: port.Bus, state: Path, bootstrap: str, size: restart_cluster.Size, starts: int
) -> dict[str, Any]:
    """Fill the topics, and start the scheduler several times."""
    monitor = Monitor(await bus.open_writer("monitor", "bench"))
    filled = await fill(monitor, size)
    print(json.dumps({"filled": filled}), flush=True)
    scheduler = Scheduler("scheduler", state / "scheduler", {"STROM_KAFKA_BOOTSTRAP": bootstrap})
    await scheduler.compile()
    found = []
    async with monitor.marking():
        for number in range(starts + 1):
            found.append(await started(bus, monitor, scheduler, f"new-{number}"))
            print(json.dumps(found[-1]), flush=True)
            async with asyncio.timeout(WITHIN_S):
                await explained(bus, size)
            await scheduler.stop()
    return {"filled": filled, "first_start": found[0], "restarts": found[1:]}


async def run(size: restart_cluster.Size, starts: int) -> dict[str, Any]:
    """Start a broker and measure on it."""
    with tempfile.TemporaryDirectory(prefix="stromboli-bench-") as folder:
        state = Path(folder)
        broker = Kafka(tools.locate(), state / "kafka")
        await broker.start()
        try:
            settings = kafka.KafkaSettings(bootstrap=(broker.bootstrap,), append_timeout_s=60.0)
            async with kafka.KafkaBus(settings) as bus:
                found = await measured(bus, state, broker.bootstrap, size, starts)
        finally:
            await broker.stop()
    return {
        "nodes": size.nodes,
        "pods": size.pods,
        "jobs": size.jobs,
        **found,
        "goals": GOALS,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


def main() -> None:
    """Measure, write the result to the file, print it."""
    usual = restart_cluster.Size()
    parser = argparse.ArgumentParser(prog="python -m bench.restart", description=__doc__)
    for name in ("nodes", "pods", "jobs"):
        parser.add_argument(f"--{name}", type=int, default=getattr(usual, name))
    parser.add_argument("--starts", type=int, default=1, help="number of measured restarts")
    given = parser.parse_args()
    size = restart_cluster.Size(given.nodes, given.pods, given.jobs)
    result = uvloop.run(run(size, given.starts))
    if size == usual:
        RAW.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
