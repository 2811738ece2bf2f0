"""Rules of the store, on SQLite and on a real PostgreSQL: exactly once, and reports that add up."""

import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.history.tests.support import events, lives
from stromboli.history.core import folding
from stromboli.history.core.rows import Rows, micros
from stromboli.history.store import (
    daily_usage,
    queries,
    retention,
    tables,
    usage,
    writer,
)
from stromboli.history.store.database import Database
from stromboli.shared import errors, keys
from stromboli.shared.api import batch
from stromboli.shared.api.views import accounting
from stromboli.shared.messages import scheduling
from stromboli.testkit import builders
from stromboli.testkit.parts import postgres


async def apply(store: Database, *messages: Any) -> list[writer.Unreadable]:
    made = writer.Writer(store)
    position = await made.position()
    begin = position.positions.get("batch.events", 0)
    records = [events.record(it, begin + number) for number, it in enumerate(messages)]
    return await made.apply(records, events.position(begin + len(records)))


async def attempts(store: Database, **query: Any) -> list[accounting.Attempt]:
    page = await queries.attempts(store, accounting.AttemptQuery(**query), events.at(1000))
    return list(page.attempts)


def labelled_job() -> batch.Job:
    job = builders.make_job("train", namespace="team", labels={"team": "vision"})
    metadata = msgspec.structs.replace(job.metadata, uid="u1")
    return msgspec.structs.replace(job, metadata=metadata)


RUN = (
    events.phase("Pending", 0, 1),
    events.task("Pending", 0),
    events.task("Bound", 10, node="n1", devices={"nvidia.com/gpu": ("GPU-a",)}),
    events.task("Running", 20, node="n1"),
    events.task("Failed", 110, node="n1", exit_code=137, reason="OOMKilled"),
)


async def test_an_attempt_has_its_life_and_what_it_used(store: Database) -> None:
    await apply(store, *RUN)
    (attempt,) = await attempts(store)
    assert (attempt.namespace, attempt.job, attempt.uid) == ("team", "train", "u1")
    assert (attempt.queue, attempt.user) == ("gpu", "ann")
    assert (attempt.state, attempt.reason, attempt.exit_code) == ("Failed", "OOMKilled", 137)
    assert (attempt.created_at, attempt.allocated_at) == (events.at(0), events.at(10))
    assert (attempt.started_at, attempt.ended_at) == (events.at(20), events.at(110))
    assert (attempt.cpu_seconds, attempt.gpu_seconds, attempt.memory_gib_seconds) == (200, 100, 400)


async def test_the_first_attempts_wait_since_the_submission_of_their_job(store: Database) -> None:
    """Pods are created when the job leaves its queue; later ones did not wait with it."""
    created = [events.task("Pending", second, f"p{second}") for second in (5, 30)]
    await apply(store, events.phase("Pending", 0, 1), events.phase("Running", 20, 2), *created)
    found = {it.pod: it.submitted_at for it in await attempts(store)}
    assert found == {"p5": events.at(0), "p30": events.at(30)}


async def test_an_attempt_that_was_open_ends_with_its_job(store: Database) -> None:
    await apply(store, *RUN[:4])
    await apply(store, events.deleted(50))
    (attempt,) = await attempts(store)
    assert (attempt.state, attempt.reason, attempt.ended_at) == (
        "Gone",
        "JobDeleted",
        events.at(50),
    )


async def test_an_attempt_that_its_time_limit_ended_has_a_state_of_its_own(store: Database) -> None:
    ended = events.task("Gone", 40, node="n1", reason="DeadlineExceeded")
    await apply(store, *RUN[:4], ended)
    (attempt,) = await attempts(store, states=("Timeout",))
    assert (attempt.state, attempt.reason) == ("Timeout", "DeadlineExceeded")
    assert await attempts(store, states=("Failed", "Gone")) == []


async def test_a_record_without_meaning_is_isolated_and_the_others_are_stored(
    store: Database,
) -> None:
    made = writer.Writer(store)
    await made.position()
    garbled = builders.undecodable_record(events.topic_of(RUN[0]), "team/train", 1)
    records = [events.record(RUN[0], 0), garbled, events.record(RUN[1], 2)]
    (isolated,) = await made.apply(records, events.position(3))
    assert isolated.record is garbled
    assert len(await attempts(store)) == 1
    async with store.transaction() as connection:
        (row,) = (await connection.execute(sa.select(tables.UNREADABLE))).all()
    assert (row.topic, row.log_offset, row.topic_id) == ("batch.events", 1, "1")


async def test_values_that_no_database_stores_are_replaced(store: Database) -> None:
    """Otherwise one forged annotation would stop the history."""
    odd = events.task("Failed", 1, pod="p\0", index=2**70, exit_code=-(2**70), reason="\0")
    assert await apply(store, odd) == []
    (attempt,) = await attempts(store)
    assert (attempt.pod, attempt.index, attempt.exit_code) == ("p�", 2**63 - 1, -(2**63 - 1))


async def test_names_longer_than_any_index_holds_stop_no_other_record(store: Database) -> None:
    """PostgreSQL refuses 2704 bytes in an index. Users write the target of a command, and the
    queue and annotations of a job of another scheduler."""
    long = random.Random(1).randbytes(3000).hex()
    job = builders.make_job("other", namespace="team", queue=long, annotations={keys.USER: long})
    requests = [
        events.requested("AbortJob", uid=long),
        events.requested(long),
        events.requested("AbortJob", subject=long),
    ]
    assert await apply(store, *requests, *RUN) == []
    made = writer.Writer(store)
    position = await made.position()
    record = builders.make_record(builders.snapshot_of(job), offset=7)
    assert await made.apply([record], position) == []
    assert len(await attempts(store)) == 1


async def test_a_record_that_an_index_refuses_is_isolated_and_the_others_are_stored(
    store: Database,
) -> None:
    """The uid is from the owner reference of a PodGroup, which users write."""
    long = random.Random(2).randbytes(3000).hex()
    decision = msgspec.structs.replace(events.evicted("p1"), job_uid=long)
    isolated = await apply(store, RUN[0], decision, *RUN[1:])
    assert [it.record.offset for it in isolated] == ([] if store.is_sqlite else [1])
    assert len(await attempts(store)) == 1


async def test_an_eviction_names_who_gets_the_room_in_any_order_of_topics(store: Database) -> None:
    decision = events.evicted("p1", "p2")
    refused = scheduling.DecisionAnswered(
        decision="scheduler/0/0",
        decision_offset=0,
        pod_group="team/urgent",
        tasks=(
            scheduling.TaskOutcome(
                namespace="team", pod="p2", uid="p2-uid", result="refused", reason="finished"
            ),
            scheduling.TaskOutcome(namespace="team", pod="p1", uid="p1-uid", result="executed"),
        ),
    )
    for order in ((decision, refused), (refused, decision)):
        rows = Rows()
        for message in order:
            event = folding.decode(events.record(message, 0))
            assert event is not None
            folding.fold(rows, event)
        assert {row.pod: (row.by_pod_group, row.refused) for row in rows.evictions.values()} == {
            "p1": ("team/urgent", ""),
            "p2": ("team/urgent", "finished"),
        }
    await apply(store, refused)
    await apply(store, decision)
    async with store.transaction() as connection:
        found = (await connection.execute(sa.select(tables.EVICTIONS))).all()
    assert {(row.pod, row.by_job_uid, row.refused) for row in found} == {
        ("p1", "u2", ""),
        ("p2", "u2", "finished"),
    }


async def test_of_two_writers_the_later_one_writes_nothing(store: Database) -> None:
    """Two replicas on one database: both apply the same batch, and it counts once."""
    first, second = writer.Writer(store), writer.Writer(store)
    await first.position()
    await second.position()
    records = events.records(*RUN)
    await first.apply(records, events.position(5))
    with pytest.raises(writer.ReplacedError):
        await second.apply(records, events.position(5))
    assert (await second.position()).positions == {"batch.events": 5}
    assert await second.apply([], events.position(6)) == []


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(pods=lives.lives(), data=st.data())
async def test_usage_adds_up_to_the_second_with_the_pods_lives(
    store: Database, pods: list[lives.Life], data: st.DataObject
) -> None:
    """In batches of any size, each repeated as after a recreated topic, by queue and by day; at any
    time attempts may be added to the sums of days."""
    await _clear(store)
    log = lives.log_of(pods)
    while log:
        size = data.draw(st.integers(1, len(log)))
        await apply(store, *log[:size])
        if data.draw(st.booleans()):
            await apply(store, *log[:size])
        if data.draw(st.booleans()):
            before = micros(events.at(data.draw(st.integers(0, lives.LAST_S))))
            while await daily_usage.add_some(store, before):
                pass
        log = log[size:]
    since, until = sorted(data.draw(st.lists(st.integers(0, lives.LAST_S), min_size=2, max_size=2)))
    now = events.at(lives.LAST_S)
    query = accounting.UsageQuery(since=events.at(since), until=events.at(until))
    report = await usage.report(store, query, now)
    for queue in {life.queue for life in pods}:
        own = [life for life in pods if life.queue == queue]
        found = next((it for it in report.usage if it.group == {"queue": queue}), None)
        for field, amount, preempted in (
            ("cpu_seconds", lambda it: it.cpu / 1000, False),
            ("gpu_seconds", lambda it: it.gpu / 1000, False),
            ("memory_gib_seconds", lambda _: 1.0, False),
            ("evicted_cpu_seconds", lambda it: it.cpu / 1000, True),
        ):
            expected = sum(
                amount(it) * it.held_s(since, until)
                for it in own
                if not preempted or (it.preempted and it.ended is not None)
            )
            assert getattr(found, field, 0.0) == pytest.approx(expected, abs=0.5), field
        # an attempt that ended when it began, or at the edge of the interval, may count or not
        held = [it for it in own if it.held_s(since, until)]
        touched = [it for it in own if it.bound is not None and it.bound <= until]
        assert len(held) <= getattr(found, "attempts", 0) <= len(touched)
        idle = sum(it.cpu / 1000 * it.idle_s(since, until) for it in own)
        assert getattr(found, "idle_cpu_seconds", 0.0) == pytest.approx(idle, abs=0.5)
    days = await usage.report(store, msgspec.structs.replace(query, by=("day", "queue")), now)
    assert sum(it.cpu_seconds for it in days.usage) == pytest.approx(
        sum(it.cpu_seconds for it in report.usage), abs=0.5
    )


LONG = 5 * 86_400
"""Seconds after noon of the end of an attempt that touches six days."""


async def _long_attempts(store: Database) -> None:
    await apply(
        store,
        events.phase("Pending", 0, 1),
        *(
            events.task(after, second, pod, node="n1", requests={"cpu": 2000})
            for pod in ("p0", "p1")
            for after, second in (("Bound", 10), ("Running", 20), ("Succeeded", LONG))
        ),
    )


async def _add_all(store: Database) -> int:
    added = 0
    while some := await daily_usage.add_some(store, micros(events.at(2 * LONG))):
        added += some
    return added


def _month(**changes: Any) -> accounting.UsageQuery:
    begin = events.at(-12 * 3600)
    return accounting.UsageQuery(since=begin, until=begin + timedelta(days=30), **changes)


async def test_an_attempt_counts_once_in_a_month_and_on_each_of_its_days(store: Database) -> None:
    await _long_attempts(store)
    assert await _add_all(store) == 2
    now = events.at(30 * 86_400)
    (found,) = (await usage.report(store, _month(), now)).usage
    assert found.attempts == 2
    assert found.cpu_seconds == pytest.approx(4 * (LONG - 10))
    days = (await usage.report(store, _month(by=("day", "queue")), now)).usage
    assert [it.attempts for it in days] == [2] * 6
    assert sum(it.cpu_seconds for it in days) == pytest.approx(found.cpu_seconds)
    (later,) = (
        await usage.report(store, _month(namespace="team", user="ann", queue="gpu"), now)
    ).usage
    assert later == found
    assert (await usage.report(store, _month(user="bob"), now)).usage == ()


async def test_sums_follow_a_job_that_changes_its_queue(store: Database) -> None:
    """Usage is that of the queue of the job, also of attempts that were added before."""
    await _long_attempts(store)
    await _add_all(store)
    moved = msgspec.structs.replace(events.phase("Completed", LONG, 2), queue="other")
    await apply(store, moved)
    now = events.at(30 * 86_400)
    for _ in range(2):
        (found,) = (await usage.report(store, _month(), now)).usage
        assert (found.group, found.attempts) == ({"queue": "other"}, 2)
        assert found.cpu_seconds == pytest.approx(4 * (LONG - 10))
        await _add_all(store)


async def test_a_late_event_of_an_attempt_corrects_the_sums(store: Database) -> None:
    """The end was published first: the binding, which came later, was not known."""
    await apply(
        store,
        events.phase("Pending", 0, 1),
        events.task("Running", 3600, node="n1", requests={"cpu": 1000}),
        events.task("Succeeded", 7200, node="n1"),
    )
    assert await _add_all(store) == 1
    await apply(store, events.task("Bound", 1800, node="n1"))
    now = events.at(30 * 86_400)
    for _ in range(2):
        (found,) = (await usage.report(store, _month(), now)).usage
        assert found.attempts == 1
        assert found.cpu_seconds == pytest.approx(5400)
        assert found.idle_cpu_seconds == pytest.approx(1800)
        assert await _add_all(store) in (0, 1)


@pytest.mark.real
async def test_the_planner_learns_that_attempts_were_added_to_their_days(
    postgres_server: postgres.Server,
) -> None:
    """Its estimate decides whether a report reads all attempts or the few that are left."""
    store = Database(postgres_server.new_database())
    await store.migrate()
    await _long_attempts(store)
    await daily_usage.update_statistics(store)
    assert await _estimated_marks(store) == ["0"]
    await _add_all(store)
    await daily_usage.update_statistics(store)
    assert await _estimated_marks(store) == ["1"]
    await store.close()


async def _estimated_marks(store: Database) -> list[str]:
    statistics = (
        "SELECT unnest(most_common_vals::text::text[]) FROM pg_stats"
        " WHERE tablename = 'attempts' AND attname = 'is_summed'"
    )
    async with store.snapshot() as connection:
        return list((await connection.execute(sa.text(statistics))).scalars())


async def test_sums_remain_when_their_attempts_are_deleted(store: Database) -> None:
    await _long_attempts(store)
    now = events.at(30 * 86_400)
    before = (await usage.report(store, _month(), now)).usage
    await _add_all(store)
    await retention.delete_expired(store, "attempts", micros(now))
    assert await attempts(store) == []
    assert (await usage.report(store, _month(), now)).usage == before
    await retention.delete_expired(store, "daily_usage", micros(now))
    assert (await usage.report(store, _month(), now)).usage == ()


async def test_an_attempt_of_a_year_counts_without_sums_of_days(store: Database) -> None:
    """A clock that jumped must not make a row for each day of a century."""
    end = 400 * 86_400
    await apply(
        store,
        events.task("Bound", 10, node="n1", requests={"cpu": 1000}),
        events.task("Succeeded", end, node="n1"),
    )
    assert await daily_usage.add_some(store, micros(events.at(2 * end))) == 0
    query = accounting.UsageQuery(since=events.at(0), until=events.at(end))
    (found,) = (await usage.report(store, query, events.at(end))).usage
    assert found.cpu_seconds == pytest.approx(end - 10)


async def _clear(store: Database) -> None:
    async with store.transaction() as connection:
        for table in (tables.JOBS, tables.ATTEMPTS, tables.PHASES, tables.DAILY_USAGE):
            await connection.execute(sa.delete(table))


async def test_pages_contain_every_attempt_once(store: Database) -> None:
    await apply(
        store, *(events.task("Pending", 5 * (number % 3), f"p{number}") for number in range(10))
    )
    seen: list[str] = []
    after = ""
    while True:
        query = accounting.AttemptQuery(limit=3, after=after)
        page = await queries.attempts(store, query, events.at(0))
        seen += [it.pod for it in page.attempts]
        after = page.continue_
        if not after:
            break
    assert sorted(seen) == sorted({f"p{number}" for number in range(10)})
    with pytest.raises(errors.InvalidError):
        await attempts(store, after="nonsense")


@pytest.mark.parametrize(
    ("query", "is_found"),
    [
        ({"namespace": "team", "job": "train"}, True),
        ({"namespace": "other"}, False),
        ({"user": "ann", "queue": "gpu"}, True),
        ({"user": "bob"}, False),
        ({"states": ("Failed", "Gone")}, True),
        ({"states": ("Running",)}, False),
        ({"node": "n1", "device": "GPU-a"}, True),
        ({"device": "GPU-"}, False),
        ({"since": events.at(100)}, True),
        ({"since": events.at(110)}, False),
        ({"until": events.at(1)}, True),
        ({"until": events.at(0)}, False),
        ({"labels": {"team": "vision"}}, True),
        ({"labels": {"team": "visio"}}, False),
        ({"labels": {"eam": "vision"}}, False),
    ],
)
async def test_filters_select(store: Database, query: dict[str, Any], is_found: bool) -> None:
    job = labelled_job()
    made = writer.Writer(store)
    await made.position()
    snapshot = builders.make_record(builders.snapshot_of(job))
    await made.apply([snapshot, *events.records(*RUN)], events.position(5))
    assert bool(await attempts(store, **query)) == is_found


async def test_a_snapshot_of_a_job_gives_its_spec_and_labels(store: Database) -> None:
    job = labelled_job()
    made = writer.Writer(store)
    await made.position()
    await made.apply([builders.make_record(builders.snapshot_of(job))], events.position(0))
    await apply(store, *RUN)
    async with store.transaction() as connection:
        (row,) = (await connection.execute(sa.select(tables.JOBS))).all()
    assert '"tasks"' in row.spec
    assert row.labels == '{"team":"vision"}'
    by_label = accounting.UsageQuery(
        since=events.at(0), until=events.at(200), by=("label:team", "user")
    )
    (used,) = (await usage.report(store, by_label, events.at(200))).usage
    assert used.group == {"label:team": "vision", "user": "ann"}


async def test_rows_are_deleted_when_their_time_is_over(store: Database) -> None:
    await apply(store, *RUN)
    for second, left in ((110, 1), (111, 0)):
        before = int(events.at(second).timestamp() * 1e6)
        await retention.delete_expired(store, "attempts", before)
        assert len(await attempts(store)) == left
    for table in retention.EXPIRES:
        assert await retention.delete_expired(store, table, 0) == 0


@pytest.mark.parametrize("text", ["mysql://a@b/c", "nonsense", ""])
def test_a_database_of_another_kind_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="sqlite:///FILE"):
        Database(text)


def test_a_report_by_day_has_a_limit_of_days() -> None:
    assert accounting.days(events.at(0), events.at(0) + timedelta(days=2)) == 3
