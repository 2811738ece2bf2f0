"""Usage by GPU type, on SQLite and on a real PostgreSQL."""

from datetime import timedelta
from typing import Any

import msgspec
import sqlalchemy as sa

from services.history.tests.support import events
from stromboli.history.core.rows import micros
from stromboli.history.store import daily_usage, database, queries, usage, writer
from stromboli.history.store.database import Database
from stromboli.shared.api.views import accounting

NOW = events.at(30 * 86_400)


async def apply(store: Database, *messages: Any) -> None:
    made = writer.Writer(store)
    begin = (await made.position()).positions.get("batch.events", 0)
    records = [events.record(it, begin + number) for number, it in enumerate(messages)]
    assert await made.apply(records, events.position(begin + len(records))) == []


async def add_all(store: Database) -> int:
    added = 0
    while some := await daily_usage.add_some(store, micros(NOW)):
        added += some
    return added


async def used(store: Database, *by: str) -> tuple[accounting.Usage, ...]:
    """Usage in the month around the attempts."""
    begin = events.at(-12 * 3600)
    query = accounting.UsageQuery(since=begin, until=begin + timedelta(days=30), by=by)
    return (await usage.report(store, query, NOW)).usage


GPUS = {"cpu": 2000, "nvidia.com/gpu": 4000}
H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB"


def _life(pod: str, node: str, gpu_type: str, requests: dict[str, int]) -> list[Any]:
    """A pod of a hundred seconds on a node with GPUs of a type."""
    steps = [
        ("Pending", 0, "", ""),
        ("Bound", 10, node, gpu_type),
        ("Running", 20, node, gpu_type),
        ("Succeeded", 110, node, gpu_type),
    ]
    return [
        events.task(after, second, pod, node=on, gpu_type=of, requests=requests if not on else {})
        for after, second, on, of in steps
    ]


async def _gpu_types(store: Database) -> None:
    await apply(
        store,
        events.phase("Pending", 0, 1),
        *_life("p0", "n1", H100, GPUS),
        *_life("p1", "n2", A100, GPUS),
        *_life("p2", "n2", A100, {"cpu": 1000}),
        *_life("p3", "n3", "", GPUS),
    )


async def test_usage_by_gpu_type_is_that_of_the_gpus_that_attempts_held(store: Database) -> None:
    """A pod without GPUs holds none of its node's, and the type of unlabelled nodes is unknown. The
    same with and without sums of days."""
    await _gpu_types(store)
    for _ in range(2):
        usages = await used(store, "gpu-type", "queue")
        by_type = {it.group["gpu-type"]: (it.gpu_seconds, it.attempts) for it in usages}
        assert by_type == {H100: (400, 1), A100: (400, 1), "": (400, 2)}
        assert await add_all(store) in (4, 0)
    page = await queries.attempts(store, accounting.AttemptQuery(), NOW)
    types = {it.pod: it.gpu_type for it in page.attempts}
    assert types == {"p0": H100, "p1": A100, "p2": "", "p3": ""}


async def test_a_gpu_type_that_is_published_late_moves_the_sums(store: Database) -> None:
    await apply(store, events.phase("Pending", 0, 1), *_life("p0", "n1", "", GPUS))
    await add_all(store)
    await apply(store, events.task("Running", 20, "p0", node="n1", gpu_type=H100))
    for _ in range(2):
        (found,) = await used(store, "gpu-type")
        assert (found.group, found.gpu_seconds) == ({"gpu-type": H100}, 400)
        await add_all(store)


async def test_sums_by_gpu_type_survive_a_migration_back_and_forward(store: Database) -> None:
    """Back: the sums of all types are added. Forward: their type is unknown, and attempts that
    have a mark are subtracted from where they were added."""
    await _gpu_types(store)
    assert await add_all(store) == 4
    whole = await used(store, "queue")
    async with store.transaction() as connection:
        await connection.run_sync(lambda it: database.downgrade(it, "0005"))
        rows = (await connection.execute(sa.text("SELECT gpu, attempts FROM daily_usage"))).all()
    assert [tuple(row) for row in rows] == [(1_200_000.0, 4.0)]
    await store.migrate()
    assert await used(store, "queue") == whole
    moved = msgspec.structs.replace(events.phase("Completed", 200, 2), queue="other")
    await apply(store, moved)
    (found,) = await used(store, "queue", "gpu-type")
    assert found.group == {"queue": "other", "gpu-type": ""}
    assert (found.attempts, found.gpu_seconds) == (4, 1200)
