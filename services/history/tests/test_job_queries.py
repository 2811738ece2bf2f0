"""Rules of the queries about jobs: their phases, and who evicted whom; on both databases."""

from typing import Any

import msgspec
import pytest

from services.history.tests.support import events
from stromboli.history.store import job_queries, queries, writer
from stromboli.history.store.database import Database
from stromboli.shared import errors
from stromboli.shared.api.views import accounting
from stromboli.shared.messages import scheduling

FIRST = (
    events.phase("Pending", 0, 1),
    events.task("Pending", 0, "p1"),
    events.phase("Running", 5, 2, before="Pending", reason="Started"),
    events.phase("Completed", 9, 3, before="Running", reason="Succeeded", message="1 succeeded"),
    events.deleted(20),
)


async def apply(store: Database, *messages: Any) -> None:
    made = writer.Writer(store)
    begin = (await made.position()).positions.get("batch.events", 0)
    records = [events.record(it, begin + number) for number, it in enumerate(messages)]
    assert await made.apply(records, events.position(begin + len(records))) == []


async def jobs(store: Database, **query: Any) -> list[accounting.JobRecord]:
    page = await job_queries.jobs(store, accounting.JobQuery(**query))
    return list(page.jobs)


async def evictions(store: Database, **query: Any) -> list[accounting.Eviction]:
    page = await job_queries.evictions(store, accounting.EvictionQuery(**query))
    return list(page.evictions)


def eviction(
    number: int, pod: str, uid: str, by: str, by_uid: str, namespace: str = "team"
) -> scheduling.StatementDecided:
    """A decision that evicts a pod for a job."""
    victim = scheduling.Eviction(namespace=namespace, pod=pod, uid=uid, reason="preempt")
    return scheduling.StatementDecided(
        pod_group=f"{by}-{by_uid}",
        pod_group_uid=f"g-{by_uid}",
        session=number,
        job_uid=by_uid,
        decision=f"scheduler/0/{number}",
        evictions=(victim,),
    )


async def test_a_job_has_its_phases_in_the_order_of_time_also_when_it_is_deleted(
    store: Database,
) -> None:
    await apply(store, *FIRST)
    (record,) = await jobs(store, namespace="team", name="train")
    assert (record.uid, record.queue, record.user, record.phase) == (
        "u1",
        "gpu",
        "ann",
        "Completed",
    )
    assert (record.submitted_at, record.finished_at) == (events.at(0), events.at(9))
    assert record.deleted_at == events.at(20)
    assert [(it.phase, it.before, it.at) for it in record.phases] == [
        ("Pending", "", events.at(0)),
        ("Running", "Pending", events.at(5)),
        ("Completed", "Running", events.at(9)),
    ]
    assert (record.phases[2].reason, record.phases[2].message) == ("Succeeded", "1 succeeded")
    assert await jobs(store, namespace="other") == []


async def test_a_job_has_the_requests_of_users_about_it_each_once(store: Database) -> None:
    """REST and a webhook may both record the same request."""
    deletion = events.requested("DeleteJob")
    command = events.requested("AbortJob", "bob", subject="c1")
    await apply(
        store,
        *FIRST,
        command,
        msgspec.structs.replace(command, entry_point="webhook"),
        events.requested("AbortJob", "bob", subject="c2"),
        events.requested("ChangeJob", subject="7", detail="minAvailable 4 -> 2"),
        msgspec.structs.replace(deletion, entry_point="webhook"),
    )
    await apply(store, deletion, events.requested("DeleteJob", uid="u9"))
    (record,) = await jobs(store, uid="u1")
    assert sorted((it.action, it.user, it.detail) for it in record.requests) == [
        ("AbortJob", "bob", ""),
        ("AbortJob", "bob", ""),
        ("ChangeJob", "ann", "minAvailable 4 -> 2"),
        ("DeleteJob", "ann", ""),
    ]
    assert record.deleted_by == ("ann",)


async def test_a_request_about_another_job_with_its_uid_is_not_of_the_job(store: Database) -> None:
    """Users write the target of a command: name and uid need not belong together."""
    forged = events.requested("AbortJob", user="eve", job="elsewhere/train")
    await apply(store, events.phase("Pending", 0, 1), forged, events.requested("AbortJob"))
    (record,) = await jobs(store)
    assert [it.user for it in record.requests] == ["ann"]


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_attempt_that_ended_with_its_job_says_who_deleted_the_job(
    store: Database, *, is_late: bool
) -> None:
    """In whatever order the two topics are read; a pod that was deleted earlier says nothing."""
    deletion = events.requested("DeleteJob")
    gone = events.task("Gone", -5, "p2", reason="Deleted")
    life = [events.task("Pending", -9, "p1"), gone, events.deleted(0)]
    await apply(store, *((*life, deletion) if is_late else (deletion, *life)))
    query = accounting.AttemptQuery(namespace="team")
    page = await queries.attempts(store, query, events.at(60))
    assert {it.pod: (it.state, it.reason, it.detail) for it in page.attempts} == {
        "p1": ("Gone", "JobDeleted", "job deleted by ann"),
        "p2": ("Gone", "Deleted", ""),
    }


async def test_a_job_that_restarts_forever_has_its_newest_phases(store: Database) -> None:
    most = accounting.MOST_PHASES
    restarts = [
        events.phase("Pending", number, number, retry_count=number) for number in range(1, most + 3)
    ]
    await apply(store, *restarts)
    (record,) = await jobs(store)
    assert [it.retry_count for it in record.phases] == list(range(3, most + 3))


async def test_jobs_of_one_name_are_on_pages_the_last_submitted_first(store: Database) -> None:
    for number in range(5):
        await apply(store, events.phase("Pending", number, 1, uid=f"u{number}"))
    shown, after = [], ""
    while True:
        page = await job_queries.jobs(
            store, accounting.JobQuery(name="train", limit=2, after=after)
        )
        shown += [it.uid for it in page.jobs]
        after = page.continue_
        if not after:
            break
    assert shown == ["u4", "u3", "u2", "u1", "u0"]
    with pytest.raises(errors.InvalidError, match="continue"):
        await jobs(store, after="nonsense")


async def test_an_eviction_is_found_from_both_of_its_jobs(store: Database) -> None:
    await apply(
        store,
        events.phase("Pending", 0, 1),
        events.task("Pending", 0, "p1"),
        events.phase("Pending", 1, 1, job="team/urgent", uid="u2"),
        eviction(1, "p1", "p1-uid", "team/urgent", "u2"),
        eviction(2, "other", "other-uid", "team/third", "u3"),
    )
    for query in (
        {"namespace": "team", "job": "train"},
        {"uid": "u1"},
        {"namespace": "team", "job": "urgent"},
        {"uid": "u2"},
    ):
        (found,) = await evictions(store, **query)
        assert (found.pod, found.job, found.uid) == ("p1", "train", "u1"), query
        assert (found.by_namespace, found.by_job, found.by_uid) == ("team", "urgent", "u2")
        assert (found.decision, found.reason) == ("scheduler/0/1", "preempt")
    assert len(await evictions(store, namespace="team")) == 2
    assert await evictions(store, namespace="elsewhere") == []


async def test_pods_and_jobs_of_another_namespace_have_no_names(store: Database) -> None:
    """A tenant learns for which namespace its pods were evicted, and not which jobs others have."""
    await apply(
        store,
        events.phase("Pending", 0, 1, job="blue/train"),
        events.task("Pending", 0, "p1", job="blue/train"),
        events.phase("Pending", 1, 1, job="red/urgent", uid="u2"),
        eviction(1, "p1", "p1-uid", "red/urgent", "u2", namespace="blue"),
    )
    (of_victim,) = await evictions(store, namespace="blue")
    assert (of_victim.pod, of_victim.by_namespace) == ("p1", "red")
    assert (of_victim.by_pod_group, of_victim.by_job, of_victim.by_uid) == ("", "", "")
    (of_evictor,) = await evictions(store, namespace="red")
    hidden = (of_evictor.pod, of_evictor.pod_uid, of_evictor.job, of_evictor.uid)
    assert (of_evictor.namespace, hidden) == ("blue", ("", "", "", ""))
    (of_operator,) = await evictions(store)
    assert (of_operator.pod, of_operator.by_job) == ("p1", "urgent")


async def test_evictions_are_found_by_the_node_of_the_pod_and_by_their_reason(
    store: Database,
) -> None:
    """The node of a pod of another namespace is not shown, and no pod there is found by it."""
    reclaimed = eviction(2, "p2", "p2-uid", "blue/urgent", "u3", namespace="red")
    victims = tuple(msgspec.structs.replace(it, reason="reclaim") for it in reclaimed.evictions)
    await apply(
        store,
        events.task("Bound", 0, "p1", job="blue/train", node="n1"),
        events.task("Bound", 0, "p2", job="red/train", uid="u9", node="n1"),
        eviction(1, "p1", "p1-uid", "red/urgent", "u2", namespace="blue"),
        msgspec.structs.replace(reclaimed, evictions=victims),
    )

    async def found(**query: Any) -> list[tuple[str, str]]:
        return [(it.pod, it.node) for it in await evictions(store, **query)]

    assert await found() == [("p2", "n1"), ("p1", "n1")]
    assert await found(node="n1", reason="preempt") == [("p1", "n1")]
    assert await found(reason="%") == await found(node="n2") == []
    assert await found(namespace="blue") == [("", ""), ("p1", "n1")]
    assert await found(namespace="blue", node="n1") == [("p1", "n1")]


async def test_a_forged_owner_of_another_namespace_is_no_beneficiary(store: Database) -> None:
    """Users write ownerReferences: a PodGroup must not read the name of a job of another
    namespace, and must not appear in the evictions of that job."""
    await apply(
        store,
        events.phase("Pending", 0, 1, job="red/secret", uid="u2"),
        events.phase("Pending", 0, 1, job="red/true", uid="u3"),
        eviction(1, "p1", "p1-uid", "blue/forged", "u2", namespace="blue"),
        eviction(2, "p2", "p2-uid", "red/true", "u3", namespace="blue"),
        eviction(3, "p3", "p3-uid", "blue/unknown", "u9", namespace="blue"),
    )
    unknown, genuine, forged = await evictions(store)
    assert (forged.by_namespace, forged.by_job, forged.by_uid) == ("blue", "", "")
    assert (genuine.by_namespace, genuine.by_job, genuine.by_uid) == ("red", "true", "u3")
    assert (unknown.by_namespace, unknown.by_job, unknown.by_uid) == ("blue", "", "u9")
    for query in (
        {"namespace": "red", "job": "secret"},
        {"namespace": "red", "uid": "u2"},
        {"job": "secret"},
        {"uid": "u2"},
    ):
        assert await evictions(store, **query) == [], query
    assert [it.by_job for it in await evictions(store, uid="u3")] == ["true"]


async def test_a_prefix_of_a_namespace_is_another_namespace(store: Database) -> None:
    await apply(store, eviction(1, "p", "p-uid", "team_a/urgent", "u2", namespace="x"))
    assert len(await evictions(store, namespace="team_a")) == 1
    assert await evictions(store, namespace="team") == []
    assert await evictions(store, namespace="teamba") == []


async def test_evictions_are_on_pages_without_gaps(store: Database) -> None:
    """All are of one time, so that the identity alone orders them."""
    statements = [eviction(at, f"p{at}", f"p{at}-uid", "team/urgent", "u2") for at in range(7)]
    await apply(store, *statements)
    shown, after = [], ""
    while True:
        query = accounting.EvictionQuery(uid="u2", limit=3, after=after)
        page = await job_queries.evictions(store, query)
        shown += [it.pod for it in page.evictions]
        after = page.continue_
        if not after:
            break
    assert sorted(shown) == [f"p{at}" for at in range(7)]
