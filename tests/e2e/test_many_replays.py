"""Many sessions of the real pipeline, in virtual time, are decided again from its log.

Jobs of several queues, sizes and priorities arrive at a system that evicts, some of them are
deleted, and the log is compacted as in a system that runs for long. ``make replays`` records 10,000
sessions.
"""

import asyncio
import contextlib
import itertools
import os
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stromboli.client.asynchronous import AsyncClient
from stromboli.embedded import log_reading, state_folder, system
from stromboli.embedded.nodes import simulated
from stromboli.scheduler import configuration_file
from stromboli.scheduler.core import plugins, policy
from stromboli.scheduler.core.replay import session_replay, snapshot_history
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import keys, topics
from stromboli.shared.api import kinds
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import objects
from stromboli.testkit.doubles import virtual_time
from tests.e2e import test_replay

SESSIONS = int(os.environ.get("STROM_REPLAY_SESSIONS", "150"))
NODES, CORES = 6, 8
LOAD = 1.0
"""Work that arrives, as a part of what the nodes can do: jobs wait, and are preempted."""
READ_EVERY = 25
"""Jobs between two reads of the log."""
OPENED_S = 1.0
"""Virtual time in which all services have observed the queues and priority classes."""
DRAINED_S = 60.0
"""Virtual time after the last submission in which most jobs end."""
DELETED = 0.1
"""Part of the jobs that their users delete while they wait or run."""
CONFIGURATION = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
QUEUES = {"one": 1, "two": 2}
PRIORITIES = {"low": 10, "high": 1000}


class Submission(NamedTuple):
    """A job and when it is submitted and deleted, in seconds of virtual time; ``deleted_s`` 0:
    never."""

    at_s: float
    manifest: dict[str, Any]
    deleted_s: float

    @property
    def name(self) -> str:
        """The name of the job."""
        name: str = self.manifest["metadata"]["name"]
        return name


def submissions(seed: int) -> Iterator[Submission]:
    """Gangs of 1 to 8 cores that run for 0.5 to 8 s."""
    draw = random.Random(seed)
    at_s = 0.0
    for number in itertools.count():
        tasks = draw.choice((1, 1, 1, 2, 2, 4, 8))
        run_s = min(8.0, max(0.5, draw.lognormvariate(0.7, 0.8)))
        requests = {"cpu": "1"}
        container = {"name": "c", "image": "busybox", "resources": {"requests": requests}}
        template = {
            "metadata": {"annotations": {keys.RUN_SECONDS: str(run_s)}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        task = {"name": "task", "replicas": tasks, "template": template}
        spec = {
            "minAvailable": draw.choice((1, tasks)),
            "queue": draw.choice(tuple(QUEUES)),
            "priorityClassName": draw.choices(tuple(PRIORITIES), (0.8, 0.2))[0],
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
            "ttlSecondsAfterFinished": 20,
            "tasks": [task],
        }
        deleted_s = at_s + draw.uniform(0, 8) if draw.random() < DELETED else 0.0
        name = {"name": f"j{number:05}", "namespace": "default"}
        yield Submission(at_s, {"metadata": name, "spec": spec}, deleted_s)
        at_s += draw.expovariate(1.0) * tasks * run_s / (LOAD * NODES * CORES)


async def record(folder: Path, count: int) -> None:
    """Submit jobs to a running system until it has recorded this many sessions, and its history is
    written."""
    file = folder / "scheduler.yaml"
    file.write_text(CONFIGURATION)
    nodes = tuple(simulated.node_documents(NODES, cpu=str(CORES), memory="64Gi", gpus=0))
    settings = SchedulerSettings(configuration=str(file), forecast_refresh_s=0.0, what_if_cpu=0.0)
    options = system.Options(state=state_folder.embedded(folder), nodes=nodes, scheduler=settings)
    loop = asyncio.get_running_loop()
    started = datetime.now(UTC)

    def clock() -> datetime:
        return started + timedelta(seconds=loop.time())

    async with system.run_system(options, clock) as running:
        await running.ready()
        for name, value in PRIORITIES.items():
            body = objects.make(kinds.PRIORITY_CLASSES, name, value=value)
            await running.cluster.create(kinds.PRIORITY_CLASSES, "", body)
        async with AsyncClient(running.url) as client, asyncio.TaskGroup() as group:
            for name, weight in QUEUES.items():
                spec = {"weight": weight, "reclaimable": True}
                await client.create_queue({"metadata": {"name": name}, "spec": spec})
            await asyncio.sleep(OPENED_S)
            begin_s = loop.time()

            async def follow(job: Submission) -> None:
                await client.submit(job.manifest)
                if job.deleted_s:
                    await asyncio.sleep(begin_s + job.deleted_s - loop.time())
                    await client.delete(job.name)

            for number, job in enumerate(submissions(seed=1)):
                await asyncio.sleep(begin_s + job.at_s - loop.time())
                if number % READ_EVERY == 0 and recorded(folder) >= count:
                    break
                group.create_task(follow(job))
        await asyncio.sleep(DRAINED_S)
        while not await test_replay.is_kept(folder):  # noqa: ASYNC110 - SQLite has no events
            await asyncio.sleep(1)


def recorded(folder: Path) -> int:
    """The number of sessions in the log."""
    path = state_folder.embedded(folder) / state_folder.LOG
    with contextlib.closing(sqlite3.connect(path)) as database:
        (count,) = database.execute(
            "SELECT count(*) FROM records WHERE key = ? AND topic ="
            " (SELECT id FROM topics WHERE name = ?)",
            (messages.SESSION_KEY, topics.DECISIONS.full_name("default")),
        ).fetchone()
    return int(count)


def replay(folder: Path) -> Iterator[session_replay.ReplayedSession]:
    """Run the recorded sessions again, from a copy of the log."""
    records = log_reading.records(log_reading.Place(folder))
    loaded = configuration_file.parse(CONFIGURATION, "scheduler.yaml", plugins.Registry())
    return session_replay.replay_sessions(
        (each for each in records if each.topic != topics.CHANGES),
        [loaded.configuration],
        policy.Policy(),
        past=snapshot_history.read_history(it for it in records if it.topic == topics.CHANGES),
    )


@pytest.mark.timeout(0 if SESSIONS > 1000 else 600)
def test_every_recorded_session_is_decided_again_byte_for_byte(tmp_path: Path) -> None:
    virtual_time.run(record(tmp_path, SESSIONS))
    counts: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    for each in replay(tmp_path):
        counts["sessions"] += 1
        counts["problem"] += bool(each.problem)
        counts["same"] += each.is_same
        counts["incomplete"] += bool(each.missing)
        counts["binds"] += sum(len(statement.binds) for statement in each.recorded)
        counts["evictions"] += sum(len(statement.evictions) for statement in each.recorded)
        missing.update(each.missing)
    sys.stdout.write(f"\n{dict(counts)}, missing {dict(missing)}\n")
    assert counts["sessions"] >= SESSIONS
    assert counts["evictions"] > 0, "no session has evicted"
    assert counts["same"] == counts["sessions"]
    assert (counts["incomplete"], missing) == (0, {})
