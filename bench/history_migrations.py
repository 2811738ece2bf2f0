"""Migrations of a large history: durations, memory, disk, and what others wait for meanwhile.

    python -m bench.history_migrations [--database URL] [--attempts N]

It fills a store of the newest tables with a month of attempts and three phases of each job, and
runs each migration from ``FIRST`` on backwards and forwards, then all of them at once as the
service does at its start, then the same killed with SIGKILL after parts of that time. Each
migration runs in a process of its own, which also measures how long its event loop does not run:
health probes are answered on it. Beside it a reader and a writer measure the longest wait for the
database. Peak disk is that of the database and its write-ahead log, sampled.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bench import history
from stromboli.history.store import database
from stromboli.history.store.database import Database
from stromboli.shared import errors

FIRST = "0008"
VERSIONS = tuple(f"{number:04}" for number in range(int(FIRST), int(database.HEAD) + 1))
KILLED_AFTER = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Parts of the duration of an upgrade after which it is killed."""
POLL_EVERY_S = 0.01
WRITE = "UPDATE attempts SET reason = reason WHERE pod_uid = 'month-1000000000001'"
MIB = 2**20
PHASES = (
    "INSERT INTO phases (job_uid, retry_count, phase, at) "
    "SELECT uid, 0, reached, submitted_at + CAST(seconds AS BIGINT) * 1000000 FROM jobs, "
    "(SELECT 'Pending' AS reached, 0 AS seconds UNION ALL SELECT 'Running', 2 "
    "UNION ALL SELECT 'Completed', 3600) AS phases_of_a_job"
)


async def prepare(url: str, attempts: int) -> None:
    """Fill a store."""
    store = Database(url)
    await store.migrate()
    await history.fill(store, attempts)
    async with store.transaction() as connection:
        await connection.execute(sa.text(PHASES))
    await history.sum_up(store)
    await store.close()


async def migrate(url: str, to: str) -> dict[str, float]:
    """Run migrations to a version in this process, and measure it."""
    store = Database(url)
    begin = await store.version()
    longest_pause_s = 0.0

    async def beat() -> None:
        nonlocal longest_pause_s
        last = time.perf_counter()
        while True:
            await asyncio.sleep(POLL_EVERY_S)
            now = time.perf_counter()
            longest_pause_s = max(longest_pause_s, now - last - POLL_EVERY_S)
            last = now

    beating = asyncio.create_task(beat())
    wall, cpu = time.perf_counter(), time.process_time()
    run = database.upgrade if to > begin else database.downgrade
    async with store.transaction() as connection:
        await connection.run_sync(run, to)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    beating.cancel()
    await store.close()
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"s": wall, "cpu_s": cpu, "memory_mib": memory_mib, "loop_paused_s": longest_pause_s}


async def start(url: str, to: str) -> asyncio.subprocess.Process:
    """A process that migrates to a version."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", __spec__.name,
        "--database", url, "--to", to, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def step(url: str, to: str) -> dict[str, float]:
    """One run of migrations, observed from outside."""
    async with observing(url) as observed:
        process = await start(url, to)
        printed, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"migration to {to}: exit code {process.returncode}")
    rounded = {name: round(value, 2) for name, value in (json.loads(printed) | observed).items()}
    return {"to": to} | rounded


@contextlib.asynccontextmanager
async def observing(url: str) -> AsyncIterator[dict[str, float]]:
    """While inside, measure disk and the longest waits of a reader and of a writer. The result has
    its values at the end."""
    store = Database(url)
    found = {"read_waited_s": 0.0, "write_waited_s": 0.0, "disk_peak_mib": 0.0}
    found["disk_before_mib"] = await disk_mib(store, url)
    is_over = asyncio.Event()

    async def wait_for(name: str, statement: str) -> None:
        while not is_over.is_set():
            began = time.perf_counter()
            await until_done(store, statement)
            found[name] = max(found[name], time.perf_counter() - began)
            await asyncio.sleep(POLL_EVERY_S)

    async def sample() -> None:
        while not is_over.is_set():
            found["disk_peak_mib"] = max(found["disk_peak_mib"], await disk_mib(store, url))
            await asyncio.sleep(10 * POLL_EVERY_S)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(wait_for("read_waited_s", "SELECT state FROM attempts LIMIT 1"))
        tasks.create_task(wait_for("write_waited_s", WRITE))
        tasks.create_task(sample())
        try:
            yield found
        finally:
            is_over.set()
    found["disk_after_mib"] = await disk_mib(store, url)
    await store.close()


async def until_done(store: Database, statement: str) -> None:
    """Execute a statement, again while the database is locked."""
    while True:
        with contextlib.suppress(errors.UnavailableError):
            async with store.transaction() as connection:
                await connection.execute(sa.text(statement))
            return


async def disk_mib(store: Database, url: str) -> float:
    """The size of the database with its write-ahead log."""
    if store.is_sqlite:
        file = Path(url.removeprefix("sqlite:///"))
        parts = (file, file.with_name(f"{file.name}-wal"))
        return sum(part.stat().st_size for part in parts if part.exists()) / MIB
    async with store.transaction() as connection:
        size = (
            "SELECT pg_database_size(current_database()) + (SELECT sum(size) FROM pg_ls_waldir())"
        )
        return float((await connection.execute(sa.text(size))).scalar_one()) / MIB


async def kill(url: str, after_s: float) -> dict[str, Any]:
    """Kill an upgrade after a time; returns the version it leaves and the duration of the next
    attempt to write, which waits for what the database still does."""
    process = await start(url, database.HEAD)
    await asyncio.sleep(after_s)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    await process.communicate()
    store = Database(url)
    began = time.perf_counter()
    await until_done(store, WRITE)
    usable_after_s = time.perf_counter() - began
    version = await store.version()
    await store.close()
    return {
        "killed_after_s": round(after_s, 2),
        "exit_code": process.returncode,
        "version": version,
        "usable_after_s": round(usable_after_s, 2),
    }


async def measure(url: str, attempts: int) -> dict[str, Any]:
    """All measurements with one database."""
    await timed("prepare", lambda: prepare(url, attempts))
    backwards = [await step(url, to) for to in reversed(VERSIONS[:-1])]
    forwards = [await step(url, to) for to in VERSIONS[1:]]
    back = await step(url, FIRST)
    whole = await step(url, database.HEAD)
    await step(url, FIRST)
    killed = [await kill(url, part * (whole["s"] + 0.5)) for part in KILLED_AFTER]
    return {
        "attempts": attempts,
        "backwards": backwards,
        "forwards": forwards,
        "all_backwards": back,
        "all_forwards": whole,
        "killed": killed,
        "all_forwards_after_kills": await step(url, database.HEAD),
    }


async def timed(what: str, call: Callable[[], Awaitable[None]]) -> None:
    """Run a part and write its duration to standard error."""
    began = time.perf_counter()
    await call()
    sys.stderr.write(f"{what}: {time.perf_counter() - began:.0f} s\n")


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", default="")
    parser.add_argument("--attempts", type=int, default=2_000_000)
    parser.add_argument("--to", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.to:
        print(json.dumps(asyncio.run(migrate(given.database, given.to))))
        return
    folder = tempfile.mkdtemp()
    try:
        url = given.database or f"sqlite:///{Path(folder) / 'history.db'}"
        found = asyncio.run(measure(url, given.attempts))
    finally:
        shutil.rmtree(folder)
    print(json.dumps({"database": url.partition(":")[0], **found}, indent=1))


if __name__ == "__main__":
    main()
