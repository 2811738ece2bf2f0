"""Attempts in PostgreSQL as one table, and partitioned by month of submission.

    python -m bench.history_partitions [--attempts N]

Both have the columns and indexes of the history, twelve months of attempts, and no other load. It
measures what a batch of 1,000 events does (reading rows by the uids of their pods, and writing them
back), and deleting the oldest month: in the steps of the history's retention, or by dropping a
partition. Durations are medians, in milliseconds.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.schema import CreateIndex

from stromboli.history.store import retention, tables
from stromboli.testkit.parts import postgres

MONTHS, MONTH_US = 12, 30 * 86_400 * 1_000_000
BATCH, RUNS = 1000, 15
NAMES = ("plain", "by_month")
_COLUMNS = [column.name for column in tables.ATTEMPTS.columns]


async def prepare(engine: AsyncEngine, attempts: int) -> None:
    """Create both tables with the same rows."""
    async with engine.begin() as connection:
        await connection.run_sync(tables.METADATA.create_all)
        await connection.execute(sa.text("ALTER TABLE attempts RENAME TO plain"))
        await connection.execute(
            sa.text(
                "CREATE TABLE by_month (LIKE plain INCLUDING DEFAULTS, "
                "PRIMARY KEY (pod_uid, submitted_at)) PARTITION BY RANGE (submitted_at)"
            )
        )
        for month in range(MONTHS + 1):
            begin, end = month * MONTH_US, (month + 1) * MONTH_US
            await connection.execute(
                sa.text(
                    f"CREATE TABLE by_month_{month} PARTITION OF by_month "
                    f"FOR VALUES FROM ({begin}) TO ({end})"
                )
            )
        for index in tables.ATTEMPTS.indexes:
            text = str(CreateIndex(index).compile(engine.sync_engine))
            name = str(index.name)
            text = text.replace(f"INDEX {name} ON attempts", f"INDEX {name}_m ON by_month")
            await connection.execute(sa.text(text))
        step_us = MONTHS * MONTH_US // attempts
        for name in NAMES:
            await connection.execute(
                sa.text(
                    f"INSERT INTO {name} (pod_uid, job_uid, namespace, job, task, state, node, "
                    "cpu, memory, submitted_at, bound_at, started_at, ended_at, "
                    "allocated_at, association, span) "
                    "SELECT md5(n::text), md5((n / 20)::text), 'team-' || n % 50, "
                    "'job-' || n / 20, "
                    "'worker', 'Succeeded', 'node-' || n % 500, 2000, 4294967296, "
                    f"n * {step_us}, n * {step_us} + 1, n * {step_us} + 2, "
                    f"n * {step_us} + 60000000, n * {step_us} + 1, n % 1000, 6 "
                    f"FROM generate_series(0::bigint, {attempts - 1}) AS n"
                )
            )
    async with engine.connect() as connection:
        connection = await connection.execution_options(isolation_level="AUTOCOMMIT")
        for name in NAMES:
            await connection.execute(sa.text(f"VACUUM ANALYZE {name}"))


async def timed(call: Callable[[int], Awaitable[Any]]) -> float:
    """The median duration in milliseconds."""
    durations = []
    for run in range(RUNS):
        begin = time.perf_counter()
        await call(run)
        durations.append(1000 * (time.perf_counter() - begin))
    return round(statistics.median(durations), 1)


async def batches(engine: AsyncEngine, name: str, attempts: int) -> dict[str, float]:
    """Reading and writing the rows of a batch; the attempts are those of the last hours."""
    keys = "pod_uid" if name == "plain" else "pod_uid, submitted_at"
    replaced = ", ".join(f"{it} = excluded.{it}" for it in _COLUMNS if it not in keys)

    def uids(run: int) -> list[str]:
        first = attempts - (run + 1) * BATCH
        return [f"md5('{first + number}')" for number in range(BATCH)]

    async def read(run: int) -> None:
        async with engine.connect() as connection:
            wanted = ", ".join(uids(run))
            text = f"SELECT * FROM {name} WHERE pod_uid IN ({wanted})"
            found = (await connection.execute(sa.text(text))).all()
            assert len(found) == BATCH

    async def write(run: int) -> None:
        async with engine.begin() as connection:
            wanted = ", ".join(uids(run))
            columns = ", ".join("'Failed'" if it == "state" else it for it in _COLUMNS)
            await connection.execute(
                sa.text(
                    f"INSERT INTO {name} ({', '.join(_COLUMNS)}) SELECT {columns} FROM {name} "
                    f"WHERE pod_uid IN ({wanted}) ON CONFLICT ({keys}) DO UPDATE SET {replaced}"
                )
            )

    return {"read_ms": await timed(read), "write_ms": await timed(write)}


async def delete_month(engine: AsyncEngine, name: str) -> dict[str, float]:
    """Delete the oldest month; seconds, and the longest transaction in milliseconds."""
    steps = []
    begin = time.perf_counter()
    while True:
        step = time.perf_counter()
        async with engine.begin() as connection:
            if name == "by_month":
                await connection.execute(sa.text("DROP TABLE by_month_0"))
                deleted = 0
            else:
                text = (
                    f"DELETE FROM plain WHERE pod_uid IN (SELECT pod_uid FROM plain WHERE ended_at "
                    f"< {MONTH_US} ORDER BY ended_at, pod_uid LIMIT {retention.ROWS_PER_DELETE})"
                )
                deleted = (await connection.execute(sa.text(text))).rowcount
        steps.append(1000 * (time.perf_counter() - step))
        if deleted < retention.ROWS_PER_DELETE:
            break
    return {"delete_s": round(time.perf_counter() - begin, 2), "longest_ms": round(max(steps), 1)}


async def measure(url: str, attempts: int) -> dict[str, Any]:
    """All measurements."""
    engine = create_async_engine(sa.make_url(url).set(drivername="postgresql+asyncpg"))
    await prepare(engine, attempts)
    found: dict[str, Any] = {"attempts": attempts}
    for name in NAMES:
        found[name] = await batches(engine, name, attempts)
        found[name] |= await delete_month(engine, name)
    await engine.dispose()
    return found


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--attempts", type=int, default=1_000_000)
    given = parser.parse_args()
    with postgres.running() as server:
        print(json.dumps(asyncio.run(measure(server.new_database(), given.attempts))))


if __name__ == "__main__":
    main()
