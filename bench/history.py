"""The history service: events read per second, and duration of queries over a million attempts.

    python -m bench.history [--database URL] [--events N] [--attempts N] [--pods-per-s N]

The log is prepared before the measurement: encoded records in memory, four for each pod. Reading
decodes them, converts them to rows and writes these in transactions of 1,000 records, in one
process. The attempts for the queries are inserted directly; each query runs once to warm up and is
then measured five times.

With ``--pods-per-s`` only the lag is measured: the service reads a log that grows by four events
for each pod at this rate for ``LAG_S`` seconds. The lag of a batch is the time from its first event
until the service reads on, so it includes the pause of the service between two batches.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from stromboli.history import service
from stromboli.history.core.rows import micros
from stromboli.history.settings import HistorySettings
from stromboli.history.store import daily_usage, queries, usage
from stromboli.history.store.database import Database
from stromboli.history.store.writer import Writer
from stromboli.shared import envelope, topics
from stromboli.shared.api.views import accounting
from stromboli.shared.bus import port
from stromboli.shared.messages import batch
from stromboli.shared.runtime import runtime

START = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = 1000
PODS_PER_JOB = 20
USERS, QUEUES, NODES = 200, 20, 500
MONTH_S = 30 * 86_400
STEPS = ("Pending", "Bound", "Running", "Succeeded")
RARE = 1000
"""The number of the only job of the user ``rare`` and of the queue ``rare``."""
RUNS = 5
LAG_S = 30
"""For how long events are appended when the lag is measured."""


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


class GrowingLog:
    """A log whose prepared records are appended at a rate. ``lags_s``: of each batch."""

    def __init__(self, prepared: Sequence[envelope.Record], per_s: float) -> None:
        self._prepared = prepared
        self._per_s = per_s
        self.lags_s: list[float] = []
        self.is_read = asyncio.Event()

    async def materialize(self, *_: Any, **__: Any) -> AsyncGenerator[port.Batch, None]:
        """Batches with all records that are there, at most as many as a page of the log has."""
        began, done = time.perf_counter(), 0
        while done < len(self._prepared):
            there = int((time.perf_counter() - began) * self._per_s)
            if there <= done:
                await asyncio.sleep(1 / self._per_s)
                continue
            end = min(there, done + BATCH, len(self._prepared))
            position = port.Position({topics.BATCH_EVENTS.name: end}, {}, {})
            yield port.Batch(tuple(self._prepared[done:end]), position, there <= end)
            self.lags_s.append(time.perf_counter() - began - done / self._per_s)
            done = end
        self.is_read.set()
        await asyncio.Event().wait()


async def measure_lag(url: str, pods_per_s: int) -> dict[str, float]:
    """Lag of the service in seconds, and CPU seconds of this process per second."""
    per_s = pods_per_s * len(STEPS)
    prepared = list(records(per_s * LAG_S))
    log: Any = GrowingLog(prepared, per_s)

    def report(fact: str, problem: str | None) -> None:
        if problem:
            raise RuntimeError(f"{fact}: {problem}")

    settings = HistorySettings(database=url)
    history = service.HistoryService(settings, log, runtime.utc_now, report, report)
    store = Database(url)
    await store.migrate()
    await store.close()
    cpu, wall = time.process_time(), time.perf_counter()
    running = asyncio.create_task(history.run())
    await log.is_read.wait()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    lags = sorted(log.lags_s)
    return {
        "pods_per_s": pods_per_s,
        "lag_s_median": lags[len(lags) // 2],
        "lag_s_p99": lags[int(len(lags) * 0.99)],
        "lag_s_max": lags[-1],
        "cpu_per_s": cpu / wall,
    }


async def fill(store: Database, attempts: int) -> None:
    """Insert a month of finished attempts, inside the database."""
    async with store.transaction() as connection:
        for statement in _filling(attempts, is_sqlite=store.is_sqlite):
            await connection.execute(sa.text(statement))
    async with store.transaction() as connection:
        await connection.execute(sa.text("ANALYZE"))


def _filling(attempts: int, *, is_sqlite: bool) -> Iterator[str]:
    """INSERTs of associations, jobs, attempts and devices. Job ``n`` has queue ``n % 20``, but 19
    only in the first tenth of the month; user ``n % 200``; namespace ``n % 10``. The attempts of
    queue 3 never fail, since those of some other queues do."""
    early = attempts // PODS_PER_JOB // 10
    numbers = (
        "WITH RECURSIVE numbers(n) AS (SELECT CAST(0 AS BIGINT) UNION ALL "
        "SELECT n + 1 FROM numbers WHERE n < {})"
    )
    queue = (
        f"CASE WHEN n = {RARE} THEN 'rare' WHEN n % {QUEUES} = {QUEUES - 1} AND n > {early} "
        f"THEN 'queue-0' ELSE 'queue-' || (n % {QUEUES}) END"
    )
    user = f"CASE WHEN n = {RARE} THEN 'rare' ELSE 'user-' || (n % {USERS}) END"
    team = f"CASE WHEN n = {RARE} THEN 'rare' ELSE 't' || (n % 7) END"
    yield (
        "INSERT INTO jobs (uid, namespace, name, queue, user_name, labels, queue_version, "
        f"submitted_at) {numbers.format(attempts // PODS_PER_JOB)} "
        f"SELECT 'month-' || n, 'team-' || (n % 10), 'job-' || n, {queue}, {user}, "
        f"""'{{"team":"' || {team} || '"}}', 1, """
        f"{micros(START)} + n * {MONTH_S * 1_000_000 * PODS_PER_JOB // attempts} FROM numbers"
    )
    yield (
        "INSERT INTO associations SELECT (SELECT coalesce(max(id), 0) FROM associations) + "
        "row_number() OVER (), namespace, queue, user_name FROM "
        "(SELECT DISTINCT namespace, queue, user_name FROM jobs WHERE uid LIKE 'month-%') AS found"
    )
    yield (
        "INSERT INTO job_labels SELECT 'month-' || n, 'team=' || "
        f"{team} FROM ({numbers.format(attempts // PODS_PER_JOB)} SELECT n FROM numbers) AS found"
    )
    begin = f"{micros(START)} + n * {MONTH_S * 1_000_000 // attempts}"
    lasted_s = "CASE WHEN n % 1000 = 999 THEN 432000 ELSE 3599 END"
    span = "CASE WHEN n % 1000 = 999 THEN 19 ELSE 12 END"
    device = f"'GPU-' || (n % {NODES}) || '-' || (n / {NODES} % 8)"
    yield (
        "INSERT INTO attempts (pod_uid, job_uid, namespace, job, task, task_index, attempt, pod, "
        "state, node, devices, cpu, memory, gpu, submitted_at, bound_at, started_at, ended_at, "
        f"allocated_at, association, span) {numbers.format(attempts - 1)} "
        f"SELECT 'month-' || (1000000000000 + n), uid, namespace, name, 'worker', "
        f"n % {PODS_PER_JOB}, 1, name || '-worker-' || n, "
        f"CASE WHEN n % 50 = 0 THEN 'Failed' ELSE 'Succeeded' END, "
        f"'node-' || (n % {NODES}), "
        f"""'{{"nvidia.com/gpu":["' || {device} || '"]}}', """
        f"1000, {2**30}, 1000, {begin}, {begin} + 1000000, {begin} + 2000000, "
        f"{begin} + CAST(1000000 AS BIGINT) * ({lasted_s}), {begin} + 1000000, id, {span} "
        f"FROM numbers JOIN jobs ON uid = 'month-' || (n / {PODS_PER_JOB}) "
        "JOIN associations USING (namespace, queue, user_name)"
    )
    yield (
        "INSERT INTO attempt_devices (pod_uid, device, submitted_at) "
        f"{numbers.format(attempts - 1)} "
        f"SELECT 'month-' || (1000000000000 + n), {device}, {begin} FROM numbers"
    )


async def sum_up(store: Database) -> float:
    """Add all attempts to the daily sums, as the service does after a migration; returns
    the seconds of the wall clock."""
    began = time.perf_counter()
    while await daily_usage.add_some(store, micros(START + timedelta(days=40))):
        pass
    await daily_usage.update_statistics(store)
    return time.perf_counter() - began


async def ask(store: Database) -> dict[str, list[float]]:
    """Query -> milliseconds: median wall-clock time, and minimum CPU time of this process."""
    now = START + timedelta(days=40)
    month = accounting.UsageQuery(since=START, until=START + timedelta(days=30), by=("user",))
    week = START + timedelta(days=7)

    def attempts(**wanted: Any) -> Callable[[], Awaitable[Any]]:
        query = accounting.AttemptQuery(**({"limit": 100} | wanted))
        return lambda: queries.attempts(store, query, now)

    middle = START + timedelta(days=15)
    last = START + timedelta(days=30, minutes=-1)
    requested: dict[str, Callable[[], Awaitable[Any]]] = {
        "one_job": attempts(namespace="team-3", job="job-23"),
        "a_name_in_all_namespaces": attempts(job="job-23"),
        "newest": attempts(),
        "newest_1000": attempts(limit=1000),
        "failed": attempts(states=("Failed",)),
        "pending_of_which_there_are_none": attempts(states=("Pending",)),
        "a_namespace": attempts(namespace="team-3"),
        "a_user": attempts(user="user-7"),
        "a_user_with_one_job": attempts(user="rare"),
        "an_unknown_user": attempts(user="nobody"),
        "a_queue": attempts(queue="queue-3"),
        "a_queue_with_one_job": attempts(queue="rare"),
        "a_queue_of_three_weeks_ago": attempts(queue=f"queue-{QUEUES - 1}"),
        "its_newest_1000": attempts(queue=f"queue-{QUEUES - 1}", limit=1000),
        "failed_of_a_queue_without_failures": attempts(queue="queue-3", states=("Failed",)),
        "a_namespace_and_a_queue_that_never_meet": attempts(namespace="team-3", queue="queue-4"),
        "a_queue_and_a_user_that_never_meet": attempts(queue="queue-3", user="user-4"),
        "a_node": attempts(node="node-7"),
        "a_node_in_a_week": attempts(node="node-7", since=week, until=week + timedelta(days=7)),
        "a_node_and_a_user_that_never_meet": attempts(node="node-7", user="rare"),
        "a_device": attempts(device="GPU-7-3"),
        "a_device_at_a_time": attempts(device="GPU-7-3", at=middle),
        "all_at_a_time": attempts(at=middle),
        "a_queue_at_a_time": attempts(queue="queue-3", at=middle),
        "the_last_minute": attempts(since=last),
        "a_minute_in_the_middle": attempts(since=middle, until=middle + timedelta(minutes=1)),
        "a_queue_in_a_minute_in_the_middle": attempts(
            queue="queue-3", since=middle, until=middle + timedelta(minutes=1)
        ),
        "a_label": attempts(labels={"team": "t3"}),
        "a_label_of_one_job": attempts(labels={"team": "rare"}),
        "a_label_and_an_old_queue": attempts(labels={"team": "t3"}, queue=f"queue-{QUEUES - 1}"),
        "usage_of_a_month_by_user": lambda: usage.report(store, month, now),
        "usage_of_29_days_from_noon_by_user": lambda: usage.report(
            store, msgspec.structs.replace(month, since=START + timedelta(hours=12)), now
        ),
        "usage_of_a_month_by_day_and_queue": lambda: usage.report(
            store, msgspec.structs.replace(month, by=("day", "queue")), now
        ),
    }
    return {name: await _taken_ms(call) for name, call in requested.items()}


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
    parser.add_argument("--pods-per-s", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.database or f"sqlite:///{Path(folder) / 'history.db'}"
        if given.pods_per_s:
            found = asyncio.run(measure_lag(url, given.pods_per_s))
        else:
            found = asyncio.run(measure(url, given.events, given.attempts))
    print(json.dumps({"database": url.partition(":")[0], **found}))


if __name__ == "__main__":
    main()
