"""The history service: events read per second, and duration of queries over a million attempts.

    python -m bench.history [--database URL] [--events N] [--attempts N]

The log is prepared before the measurement: encoded records in memory, four for each pod. Reading
decodes them, converts them to rows and writes these in transactions of 1,000 records, in one
process. The attempts for the queries are inserted directly; each query runs once to warm up and is
then measured five times.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from stromboli.history.core.rows import AttemptRow, JobRow, micros
from stromboli.history.store import daily_usage, queries, tables, usage
from stromboli.history.store.database import Database
from stromboli.history.store.writer import Writer
from stromboli.shared import envelope, topics
from stromboli.shared.api import accounting
from stromboli.shared.bus import port
from stromboli.shared.messages import batch

START = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = 1000
PODS_PER_JOB = 20
USERS, QUEUES, NODES = 200, 20, 500
MONTH_S = 30 * 86_400
STEPS = ("Pending", "Bound", "Running", "Succeeded")
RARE = 1000
"""The one job of a user and of a queue."""
RUNS = 5


def records(count: int) -> Iterator[envelope.Record]:
    """The records of pods that run one second each."""
    for offset in range(count):
        pod, step = divmod(offset, len(STEPS))
        job = f"team/job-{pod // PODS_PER_JOB}"
        message = batch.TaskChanged(
            job=job,
            uid=f"uid-of-{job}",
            task="worker",
            index=pod % PODS_PER_JOB,
            pod=f"{job}-worker-{pod}",
            pod_uid=f"00000000-0000-0000-0000-{pod:012}",
            before="",
            after=STEPS[step],
            at=START + timedelta(milliseconds=250 * offset),
            node="" if step == 0 else f"node-{pod % NODES}",
            attempt=1,
            requests={"cpu": 1000, "memory": 2**30, "nvidia.com/gpu": 1000} if step == 0 else {},
        )
        draft = envelope.Draft(topic=topics.BATCH_EVENTS, key=job, message=message, time=message.at)
        headers, value = envelope.seal(draft, "controller", 1, offset, cluster_name="default")
        yield envelope.Record(draft.topic, offset, job, value, headers)


async def ingest(store: Database, count: int) -> dict[str, float]:
    """Events per second of wall-clock time and per CPU second of this process."""
    prepared = list(records(count))
    writer = Writer(store)
    await writer.position()
    wall, cpu = time.perf_counter(), time.process_time()
    for begin in range(0, count, BATCH):
        position = port.Position({topics.BATCH_EVENTS.name: begin + BATCH}, {}, {})
        await writer.apply(prepared[begin : begin + BATCH], position)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"events_per_s": count / wall, "events_per_cpu_s": count / cpu}


async def fill(store: Database, attempts: int) -> None:
    """Insert a month of finished attempts."""
    await _insert(store, tables.JOBS, (_job(it) for it in range(attempts // PODS_PER_JOB + 1)))
    await _insert(store, tables.ATTEMPTS, (_attempt(it, attempts) for it in range(attempts)))
    async with store.transaction() as connection:
        await connection.execute(sa.text("ANALYZE"))


async def _insert(store: Database, table: sa.Table, rows: Iterator[msgspec.Struct]) -> None:
    chunk: list[dict[str, Any]] = []
    for row in rows:
        chunk.append(msgspec.structs.asdict(row))
        if len(chunk) == 20_000:
            async with store.transaction() as connection:
                await connection.execute(sa.insert(table), chunk)
            chunk = []
    if chunk:
        async with store.transaction() as connection:
            await connection.execute(sa.insert(table), chunk)


def _job(number: int) -> JobRow:
    return JobRow(
        f"month-{number}",
        f"team-{number % 10}",
        f"job-{number}",
        queue=f"queue-{number % QUEUES}" if number != RARE else "rare",
        user_name=f"user-{number % USERS}" if number != RARE else "rare",
        labels=json.dumps({"team": f"t{number % 7}"}, separators=(",", ":")),
    )


def _attempt(number: int, count: int) -> AttemptRow:
    begin = micros(START) + number * MONTH_S * 1_000_000 // count
    job = number // PODS_PER_JOB
    return AttemptRow(
        f"month-{number:012}",
        f"month-{job}",
        f"team-{job % 10}",
        f"job-{job}",
        "worker",
        number % PODS_PER_JOB,
        1,
        0,
        f"job-{job}-worker-{number}",
        "Failed" if number % 50 == 0 else "Succeeded",
        f"node-{number % NODES}",
        cpu=1000,
        memory=2**30,
        gpu=1000,
        submitted_at=begin,
        bound_at=begin + 10**6,
        started_at=begin + 2 * 10**6,
        ended_at=begin + 3600 * 10**6,
        allocated_at=begin + 10**6,
    )


async def sum_up(store: Database) -> float:
    """Add all attempts to the sums of their days, as the service does after a migration; returns
    the seconds of the wall clock."""
    began = time.perf_counter()
    while await daily_usage.add_some(store, micros(START + timedelta(days=40))):
        pass
    return time.perf_counter() - began


async def ask(store: Database) -> dict[str, list[float]]:
    """Query -> milliseconds: median wall-clock time, and minimum CPU time of this process."""
    now = START + timedelta(days=40)
    month = accounting.UsageQuery(since=START, until=START + timedelta(days=30), by=("user",))
    week = START + timedelta(days=7)

    def attempts(**wanted: Any) -> Callable[[], Awaitable[Any]]:
        query = accounting.AttemptQuery(limit=100, **wanted)
        return lambda: queries.attempts(store, query, now)

    asked: dict[str, Callable[[], Awaitable[Any]]] = {
        "one_job": attempts(namespace="team-3", job="job-23"),
        "newest": attempts(),
        "newest_failed_of_a_queue": attempts(queue="queue-3", states=("Failed",)),
        "newest_of_a_user": attempts(user="user-7"),
        "newest_of_a_user_with_one_job": attempts(user="rare"),
        "newest_of_a_queue_with_one_job": attempts(queue="rare"),
        "a_node_in_a_week": attempts(node="node-7", since=week, until=week + timedelta(days=7)),
        "usage_of_a_month_by_user": lambda: usage.report(store, month, now),
        "usage_of_29_days_from_noon_by_user": lambda: usage.report(
            store, msgspec.structs.replace(month, since=START + timedelta(hours=12)), now
        ),
        "usage_of_a_month_by_day_and_queue": lambda: usage.report(
            store, msgspec.structs.replace(month, by=("day", "queue")), now
        ),
    }
    return {name: await _taken_ms(call) for name, call in asked.items()}


async def _taken_ms(call: Callable[[], Awaitable[Any]]) -> list[float]:
    await call()
    walls, cpus = [], []
    for _ in range(RUNS):
        wall, cpu = time.perf_counter(), time.process_time()
        await call()
        walls.append(1000 * (time.perf_counter() - wall))
        cpus.append(1000 * (time.process_time() - cpu))
    return [round(sorted(walls)[RUNS // 2], 1), round(min(cpus), 1)]


async def measure(url: str, events: int, attempts: int) -> dict[str, Any]:
    """Measure reading and queries with one database."""
    store = Database(url)
    await store.migrate()
    read = await ingest(store, events)
    await fill(store, attempts)
    summed_per_s = attempts / await sum_up(store)
    found = {
        "events": events,
        **read,
        "attempts": attempts,
        "added_to_the_days_per_s": summed_per_s,
        "queries_ms": await ask(store),
    }
    await store.close()
    return found


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", default="")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--attempts", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.database or f"sqlite:///{Path(folder) / 'history.db'}"
        found = asyncio.run(measure(url, given.events, given.attempts))
    print(json.dumps({"database": url.partition(":")[0], **found}))


if __name__ == "__main__":
    main()
