"""Rules of the lists of attempts, on both databases: what filters select, and that a list reads few
rows whatever it selects."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.history.tests.support import events
from stromboli.history.core.rows import micros
from stromboli.history.settings import HistorySettings
from stromboli.history.store import attempt_walks, index_walks, queries, retention, tables, writer
from stromboli.history.store.database import Database
from stromboli.shared.api.views import accounting

HOUR, DAY = 3600, 86_400
QUEUES, USERS, NAMESPACES = ("gpu", "cpu"), ("ann", "bob"), ("team", "lab")


async def apply(store: Database, *messages: Any) -> None:
    made = writer.Writer(store)
    begin = (await made.position()).positions.get("batch.events", 0)
    records = [events.record(it, begin + number) for number, it in enumerate(messages)]
    assert await made.apply(records, events.position(begin + len(records))) == []


async def pods(store: Database, **query: Any) -> list[str]:
    """The pods of all pages, in their order."""
    found: list[str] = []
    after = ""
    while True:
        requested = accounting.AttemptQuery(**query, after=after)
        page = await queries.attempts(store, requested, events.at(0))
        found += [it.pod for it in page.attempts]
        after = page.continue_
        if not after:
            return found


def life(
    pod: str, job: int, submitted: int, lasted: int | None, state: str = "Succeeded", **fields: Any
) -> list[Any]:
    """The events of a pod that is bound a second after its submission."""
    known: dict[str, Any] = {"job": f"{NAMESPACES[job % 2]}/j{job % 3}", "uid": f"u{job}"}
    known |= {"node": f"n{job % 2}", "devices": {"nvidia.com/gpu": (f"GPU-{job % 3}",)}}
    made = [
        events.task("Pending", submitted, pod, **{**known, "node": "", "devices": {}}),
        events.task("Bound", submitted + 1, pod, **(known | fields)),
    ]
    if lasted is not None:
        made.append(events.task(state, submitted + 1 + lasted, pod, **(known | fields)))
    return made


@st.composite
def stores(draw: st.DrawFn) -> list[Any]:
    """Jobs with queues and users, and their pods; many are submitted in the same second."""
    made: list[Any] = [
        events.phase(
            "Pending",
            0,
            1,
            job=f"{NAMESPACES[job % 2]}/j{job % 3}",
            uid=f"u{job}",
            queue=draw(st.sampled_from(QUEUES)),
            user=draw(st.sampled_from(USERS)),
        )
        for job in range(6)
    ]
    for number in range(draw(st.integers(1, 12))):
        made += life(
            f"p{number}",
            draw(st.integers(0, 5)),
            draw(st.sampled_from((0, 1, 60, HOUR, DAY, 2 * DAY))),
            draw(st.sampled_from((None, 0, 59, HOUR, DAY))),
            draw(st.sampled_from(("Succeeded", "Failed", "Gone"))),
        )
    return made


@st.composite
def requested(draw: st.DrawFn) -> dict[str, Any]:
    """Any combination of filters."""
    choices: dict[str, Any] = {
        "namespace": st.sampled_from(NAMESPACES),
        "job": st.sampled_from(("j0", "j1", "unknown")),
        "uid": st.sampled_from(("u0", "u1")),
        "queue": st.sampled_from(QUEUES),
        "user": st.sampled_from(USERS),
        "node": st.sampled_from(("n0", "n1")),
        "device": st.sampled_from(("GPU-0", "GPU-1")),
        "states": st.sampled_from((("Failed",), ("Succeeded", "Gone"), ("Bound",))),
        "since": st.sampled_from((0, 30, HOUR, DAY + 1)).map(events.at),
        "until": st.sampled_from((1, HOUR, DAY, 3 * DAY)).map(events.at),
        "at": st.sampled_from((1, 61, HOUR + 1, DAY + 5)).map(events.at),
    }
    names = draw(st.sets(st.sampled_from(sorted(choices)), max_size=4))
    return {name: draw(choices[name]) for name in sorted(names)}


def selects(query: dict[str, Any], row: Any) -> bool:
    """What the filters mean, one row at a time."""
    equal = {"namespace": "namespace", "job": "job", "uid": "job_uid", "node": "node"}
    equal |= {"queue": "queue", "user": "user_name"}
    for name, value in query.items():
        match name:
            case "states":
                is_selected = row.state in value
            case "device":
                is_selected = f'"{value}"' in row.devices
            case "since":
                is_selected = row.ended_at is None or row.ended_at > micros(value)
            case "until":
                is_selected = row.submitted_at < micros(value)
            case "at":
                is_selected = row.allocated_at <= micros(value) and (
                    row.ended_at is None or row.ended_at > micros(value)
                )
            case _:
                is_selected = getattr(row, equal[name]) == value
        if not is_selected:
            return False
    return True


@pytest.mark.parametrize("few", [attempt_walks.FEW, 0], ids=["selective", "frequent"])
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    log=stores(), queries_=st.lists(requested(), min_size=3, max_size=3), limit=st.integers(3, 9)
)
async def test_every_combination_of_filters_selects_what_its_filters_mean(
    store: Database, few: int, log: list[Any], queries_: list[dict[str, Any]], limit: int
) -> None:
    """Page by page, newest first, each attempt once; also if every value is frequent."""
    async with store.transaction() as connection:
        for table in (tables.JOBS, tables.ATTEMPTS, tables.PHASES, tables.ATTEMPT_DEVICES):
            await connection.execute(sa.delete(table))
    await apply(store, *log)
    names = tables.ASSOCIATIONS.c
    joined = tables.ATTEMPTS.join(tables.ASSOCIATIONS, names.id == tables.ATTEMPTS.c.association)
    order = tables.ATTEMPTS.c.submitted_at.desc(), tables.ATTEMPTS.c.pod_uid.desc()
    every = sa.select(tables.ATTEMPTS, names.queue, names.user_name).select_from(joined)
    async with store.transaction() as connection:
        rows = (await connection.execute(every.order_by(*order))).all()
    for query in queries_:
        expected = [row.pod for row in rows if selects(query, row)]
        assert await pods(store, **query, limit=limit) == expected, query
        walked = await _positions(store, query, limit, few)
        assert walked == [f"{it}-uid" for it in expected], query


async def _positions(store: Database, query: dict[str, Any], limit: int, few: int) -> list[str]:
    after, found = index_walks.BEGIN, list[str]()
    bounds = attempt_walks.Bounds(few=few, probed=limit, entries=limit)
    while True:
        async with store.snapshot() as connection:
            page = await attempt_walks.find(
                connection, accounting.AttemptQuery(**query), after, limit, bounds
            )
        found += [uid for _, uid in page.positions]
        if page.rest is None and len(page.positions) < limit:
            return found
        after = page.positions[-1] if len(page.positions) == limit else page.rest or after


async def _many(store: Database, count: int) -> None:
    """Attempts of one second each, every 100th in the queue gpu, all others in cpu, which fail."""
    await apply(
        store,
        events.phase("Pending", 0, 1, job="team/j0", uid="u0", queue="gpu"),
        events.phase("Pending", 0, 1, job="team/j1", uid="u1", queue="cpu"),
        *(
            event
            for number in range(count)
            for event in life(
                f"p{number}",
                int(number % 100 != 0),
                number,
                1,
                "Failed" if number % 100 else "Succeeded",
            )
        ),
    )


async def test_a_list_of_a_rare_combination_reads_few_entries(store: Database) -> None:
    """Neither value is rare, and the queue has no failed attempt: a walk in the order of time
    would read all."""
    await _many(store, 2000)
    bounds = attempt_walks.Bounds(few=10, probed=20, entries=index_walks.MOST_ENTRIES)
    for query, found in (
        (accounting.AttemptQuery(queue="gpu", states=("Failed",)), 0),
        (accounting.AttemptQuery(queue="gpu"), 10),
        (accounting.AttemptQuery(since=events.at(1995)), 6),
        (accounting.AttemptQuery(at=events.at(1000)), 1),
    ):
        async with store.snapshot() as connection:
            page = await attempt_walks.find(connection, query, index_walks.BEGIN, 10, bounds)
        assert len(page.positions) == found, query
        assert page.read <= 40, query


async def test_a_page_is_short_instead_of_reading_without_bound(store: Database) -> None:
    await _many(store, 500)
    bounds = attempt_walks.Bounds(few=0, probed=10, entries=100)
    query = accounting.AttemptQuery(node="n0", device="GPU-1")
    async with store.snapshot() as connection:
        page = await attempt_walks.find(connection, query, index_walks.BEGIN, 10, bounds)
    assert page.positions == []
    assert page.rest is not None


async def test_attempts_of_a_state_alone_are_one_walk_however_many_tenants_there_are(
    store: Database,
) -> None:
    """Merged from a walk for each association, failed attempts of all took 1.2 s in PostgreSQL."""
    lives = (
        (
            events.task("Pending", at, f"p{at}", job=f"n{at}/train", uid=f"u{at}"),
            events.task("Failed" if at < 70 else "Succeeded", at + 1, f"p{at}", job=f"n{at}/train",
                        uid=f"u{at}"),
        )
        for at in range(100)
    )  # fmt: skip
    await apply(store, *(event for life_ in lives for event in life_))
    bounds = attempt_walks.Bounds(few=0, probed=10)
    query = accounting.AttemptQuery(states=("Failed",))
    statements: list[str] = []
    async with store.snapshot() as connection:
        sync = connection.sync_connection
        assert sync is not None
        sa.event.listen(sync, "before_cursor_execute", lambda *given: statements.append(given[2]))
        page = await attempt_walks.find(connection, query, index_walks.BEGIN, 5, bounds)
    assert [uid for _, uid in page.positions] == [f"p{at}-uid" for at in range(69, 64, -1)]
    assert len(statements) <= 3, "the newest of all, then those of the state"


@pytest.mark.parametrize(
    "query",
    [
        accounting.AttemptQuery(states=("Pending",)),
        accounting.AttemptQuery(queue="gpu", states=("Succeeded",)),
        accounting.AttemptQuery(queue="cpu", at=events.at(250)),
        accounting.AttemptQuery(node="n0"),
    ],
)
async def test_sqlite_reads_a_walk_from_the_index_with_its_values(
    query: accounting.AttemptQuery, tmp_path: Path
) -> None:
    """The index over all attempts has the whole order, and SQLite preferred it: a list of a state
    without attempts read all 10 million."""
    store = Database(f"sqlite:///{tmp_path / 'history.db'}")
    await store.migrate()
    await _many(store, 500)
    async with store.transaction() as connection:
        await connection.execute(sa.text("ANALYZE"))
    bounds = attempt_walks.Bounds(few=0, probed=10)
    requested: list[tuple[str, Any]] = []
    async with store.snapshot() as connection:
        sync = connection.sync_connection
        assert sync is not None
        sa.event.listen(
            sync, "before_cursor_execute", lambda *given: requested.append((given[2], given[3]))
        )
        await attempt_walks.find(connection, query, index_walks.BEGIN, 10, bounds)
        statement, parameters = requested[-1]
        plan = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        reads = {row["detail"] for row in plan.mappings() if "attempts " in row["detail"]}
    await store.close()
    assert reads
    assert all("attempts_by_submission" not in read for read in reads), reads


async def test_who_had_a_device_at_a_time(store: Database) -> None:
    """Also of a slice; an attempt that waited then had no device yet."""
    await apply(
        store,
        *life("p1", 0, 0, 100, devices={"nvidia.com/gpu": ("GPU-a (5000MiB)",)}),
        *life("p2", 0, 0, 100, devices={"nvidia.com/gpu": ("GPU-b",)}),
        events.task("Pending", 50, "p3"),
        events.task("Bound", 200, "p3", node="n1", devices={"nvidia.com/gpu": ("GPU-a",)}),
    )
    for second, expected in ((0, []), (1, ["p1"]), (60, ["p1"]), (101, []), (200, ["p3"])):
        at: datetime = events.at(second)
        assert await pods(store, device="GPU-a", at=at) == expected, second


async def test_an_attempt_keeps_its_queue_and_user_when_its_job_is_deleted(
    store: Database,
) -> None:
    await apply(
        store,
        events.phase("Pending", 0, 1),
        events.task("Pending", 0),
        events.task("Succeeded", 10, node="n1"),
        events.deleted(20),
    )
    assert await retention.delete_expired(store, "jobs", micros(events.at(30))) == 1
    assert await pods(store, queue="gpu", user="ann") == ["p1"]


@pytest.mark.parametrize(
    ("jobs", "attempts", "kept"), [(1, 30, 30), (30, 1, 30), (0, 1, 0), (1, 0, 0)]
)
def test_jobs_are_kept_at_least_as_long_as_their_attempts(
    jobs: float, attempts: float, kept: float
) -> None:
    """Attempts are found and reported by the labels of their jobs; 0 is forever."""
    history_settings = HistorySettings(jobs_days=jobs, attempts_days=attempts)
    assert history_settings.jobs_kept_days == kept


async def test_devices_and_labels_are_deleted_with_their_rows(store: Database) -> None:
    await apply(store, *life("p1", 0, 0, 10))
    await retention.delete_expired(store, "attempts", micros(events.at(30)))
    async with store.transaction() as connection:
        assert (await connection.execute(sa.select(tables.ATTEMPT_DEVICES))).all() == []
