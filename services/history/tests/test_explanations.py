"""Explanations of pending jobs and their positions over time; on both databases."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.history.tests.support import events
from stromboli.history.core import explanations, folding
from stromboli.history.core.rows import Rows, micros
from stromboli.history.store import database, explanation_queries, retention, writer
from stromboli.history.store.database import Database
from stromboli.shared import envelope, errors, topics
from stromboli.shared.api.views import accounting
from stromboli.shared.bus import port
from stromboli.shared.messages import scheduling
from stromboli.testkit.builders import make_record

TRAIN = "team/train-u1"
HOUR_S = explanations.THINNED.total_seconds()


def _record(key: str, second: float, message: msgspec.Struct | None) -> envelope.Record:
    draft = envelope.Draft(
        topic=topics.EXPLANATIONS, key=key, message=message, time=events.at(second)
    )
    return make_record(draft)


def why(second: float, tier: scheduling.Tier, free: int = 0, name: str = TRAIN) -> envelope.Record:
    """The scheduler explains why a PodGroup is pending."""
    shortage = scheduling.Shortage(resource="cpu", needed=8, free=free, total=64)
    message = scheduling.PodGroupExplained(
        pod_group=name, pod_group_uid="g", queue="gpu", phase="Inqueue", tier=tier, message="",
        min_member=1, members=1, running=0, pending=1, placeable=0, shortages=(shortage,),
    )  # fmt: skip
    return _record(name, second, message)


def placed(second: float, name: str = TRAIN) -> envelope.Record:
    """Nothing blocks a PodGroup any more."""
    return _record(name, second, None)


def order(second: float, *names: str, chunk: int = 0) -> envelope.Record:
    """A chunk of the order of the queue ``gpu``."""
    message = scheduling.QueueOrdered(queue="gpu", chunk=chunk, pod_groups=names)
    return _record(scheduling.queue_order_key("gpu", chunk), second, message)


async def apply(store: Database, *records: envelope.Record) -> None:
    made = writer.Writer(store)
    begin = (await made.position()).positions.get(topics.EXPLANATIONS.name, 0)
    position = port.Position({topics.EXPLANATIONS.name: begin + len(records)}, {}, {})
    assert await made.apply(records, position) == []


async def submit(store: Database) -> None:
    """The job team/train exists in the store."""
    made = writer.Writer(store)
    position = await made.position()
    await made.apply(events.records(events.phase("Pending", 0, 1)), position)


async def page(store: Database, **query: Any) -> accounting.ExplanationPage:
    return await explanation_queries.explanations(store, accounting.ExplanationQuery(**query))


def kinds_of(explanation_page: accounting.ExplanationPage) -> list[tuple[Any, str]]:
    return [
        (it.at, it.explained["tier"] if it.explained else "")
        for it in explanation_page.explanations
    ]


async def test_each_change_of_the_reason_is_kept_and_its_end(store: Database) -> None:
    await submit(store)
    records = (
        why(1, "enqueue"), why(2, "enqueue", free=4), why(3, "resources", free=6), placed(4),
        why(5, "resources"), placed(6),
    )  # fmt: skip
    await apply(store, *records)
    expected = [
        (events.at(6), ""),
        (events.at(5), "resources"),
        (events.at(4), ""),
        (events.at(3), "resources"),
        (events.at(1), "enqueue"),
    ]
    assert kinds_of(await page(store, namespace="team", job="train")) == expected
    await apply(store, *records)  # redelivered, as after a kill before the position was known
    explanation_page = await page(store, uid="u1")
    assert kinds_of(explanation_page) == expected
    explained = explanation_page.explanations[3].explained
    assert explained is not None
    assert (explained["shortages"][0]["free"], explained["queue"]) == (6, "gpu")
    then = await page(store, uid="u1", until=events.at(3.5), limit=1)
    assert kinds_of(then) == [(events.at(3), "resources")]


async def test_the_same_reason_is_kept_once_in_an_hour(store: Database) -> None:
    await submit(store)
    await apply(store, *(why(60 * minute, "resources", free=minute) for minute in range(150)))
    assert kinds_of(await page(store, uid="u1")) == [
        (events.at(2 * HOUR_S), "resources"),
        (events.at(HOUR_S), "resources"),
        (events.at(0), "resources"),
    ]


async def test_positions_count_all_chunks_in_front(store: Database) -> None:
    await submit(store)
    await apply(
        store,
        why(1, "enqueue"),
        order(1, "team/a", "team/b"),
        order(1, "team/c", TRAIN, chunk=1),
        order(HOUR_S / 2, TRAIN, chunk=1),
        order(2 * HOUR_S, "team/a"),
        order(2 * HOUR_S, TRAIN, chunk=1),
        order(4 * HOUR_S, TRAIN, "team/z", chunk=1),
    )
    explanation_page = await page(store, uid="u1")
    assert [(it.at, it.in_front) for it in explanation_page.positions] == [
        (events.at(2 * HOUR_S), 1),
        (events.at(1), 3),
    ]
    assert (await page(store, namespace="team")).positions == ()


async def test_a_job_is_not_another_one_with_its_name_as_a_prefix(store: Database) -> None:
    await submit(store)
    await apply(store, why(1, "gang"), why(2, "gang", name="team/train-u1-more-u9"))
    assert len((await page(store, namespace="team", job="train")).explanations) == 1
    assert len((await page(store, namespace="team")).explanations) == 2
    assert (await page(store, namespace="te")).explanations == ()
    assert (await page(store, namespace="other", uid="u1")).explanations == ()


async def test_explanations_are_on_pages_without_gaps_and_expire(store: Database) -> None:
    names = [f"team/g{number}" for number in range(7)]
    await apply(store, *(why(1, "gang", name=name) for name in names))
    shown, after = [], ""
    while True:
        explanation_page = await page(store, limit=3, after=after)
        shown += [f"{it.namespace}/{it.pod_group}" for it in explanation_page.explanations]
        after = explanation_page.continue_
        if not after:
            break
    assert sorted(shown) == names
    with pytest.raises(errors.InvalidError, match="continue"):
        await page(store, after="nonsense")
    for table in ("explanations", "last_explanations"):
        assert await retention.delete_expired(store, table, 2**60) == 7


@pytest.mark.parametrize("key", ["queue//gpu//0", "forecast//all//0", "sessions"])
def test_records_about_no_pod_group_end_no_wait(key: str) -> None:
    assert folding.decode(_record(key, 1, None)) is None


STEPS = st.lists(
    st.tuples(st.integers(1, 4 * int(HOUR_S)), st.sampled_from(["", "gang", "share"])), max_size=30
)


@given(STEPS)
def test_what_is_kept_is_right_at_every_time_but_for_numbers(drawn: list[tuple[int, Any]]) -> None:
    """The kind of reason at any time is that of the last record before it, whatever comes twice."""
    steps = sorted(dict(drawn).items())
    rows = Rows()
    for second, tier in steps:
        for _ in range(2):
            event = folding.decode(why(second, tier) if tier else placed(second))
            assert event is not None
            folding.fold(rows, event)
    kept = {at: row.tier for (_, at), row in rows.explanations.items()}
    for (_, at), row in rows.explanations.items():
        assert (row.explained == "") == (row.tier == "")
        assert at == row.at
    current = ""
    for second, tier in steps:
        known = [at for at in kept if at <= micros(events.at(second))]
        current = kept[max(known)] if known else ""
        assert current == tier


async def test_tables_of_version_8_go_forward_and_back_with_their_rows(store: Database) -> None:
    await submit(store)
    async with store.transaction() as connection:
        await connection.run_sync(lambda it: database.downgrade(it, "0008"))
    await store.migrate()
    assert await store.version() == database.HEAD
    await apply(store, why(1, "gang"))
    assert len((await page(store, uid="u1")).explanations) == 1
