"""The history of tasks: every attempt, despite repeated records, within a memory limit."""

from collections import deque
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.admission.core.task_history import TaskHistories
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import envelope, topics
from stromboli.shared.messages import batch
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, cpu_time
from stromboli.testkit.builders import NOON
from stromboli.testkit.doubles import shared_rest

J = "default/j1"
LIVES = (("Pending", "Bound", "Running", "Succeeded"), ("Pending", "Terminating", "Gone"))


def at(second: int) -> Any:
    return NOON + timedelta(seconds=second)


def seen(after: str, second: int, pod: str = "p1", **fields: Any) -> batch.TaskChanged:
    known: dict[str, Any] = {
        "job": J,
        "uid": "u1",
        "task": "w",
        "index": 0,
        "attempt": 1,
        "before": "",
    }
    known |= {"pod": pod, "pod_uid": f"{pod}-uid", "after": after, "at": at(second)}
    return batch.TaskChanged(**(known | fields))


def record(message: Any) -> envelope.Record:
    draft = envelope.Draft(
        topic=topics.BATCH_EVENTS, key=message.job, message=message, time=message.at
    )
    return builders.make_record(draft)


def fold(*messages: Any, limit: int = 1000) -> TaskHistories:
    task_histories = TaskHistories(limit)
    for message in messages:
        task_histories.fold(record(message))
    return task_histories


FIRST = (
    seen("Pending", 0),
    seen("Bound", 2, node="n1"),
    seen("Running", 3, node="n1"),
    seen("Failed", 9, node="n1", exit_code=137, reason="OOMKilled"),
)
SECOND = (
    seen("Pending", 10, "p2", attempt=2, retry_count=1),
    seen("Running", 12, "p2", attempt=2, retry_count=1, node="n2"),
)


def test_the_devices_of_an_attempt_stay_when_its_end_says_nothing_of_them() -> None:
    had = {"nvidia.com/gpu": ("GPU-1",)}
    history = fold(seen("Bound", 1, devices=had), seen("Failed", 2)).of(J)
    assert history is not None
    assert [attempt.devices for attempt in history.tasks] == [had]


def test_an_attempt_has_its_node_its_end_and_its_times() -> None:
    history = fold(*FIRST).of(J)
    assert history is not None
    (attempt,) = history.tasks
    assert (attempt.state, attempt.node, attempt.exit_code) == ("Failed", "n1", 137)
    assert attempt.reason == "OOMKilled"
    times = (attempt.created_at, attempt.bound_at, attempt.running_at, attempt.ended_at)
    assert times == (at(0), at(2), at(3), at(9))


def test_an_attempt_first_seen_running_has_the_creation_time_of_its_pod() -> None:
    seen_late = seen("Bound", 2, created_at=at(1))
    seen_again = seen("Running", 3, created_at=at(2))
    history = fold(seen_late, seen_again).of(J)
    assert history is not None
    assert [(it.created_at, it.bound_at) for it in history.tasks] == [(at(1), at(2))]
    history = fold(seen("Pending", 2, created_at=at(1))).of(J)
    assert history is not None
    assert [it.created_at for it in history.tasks] == [at(2)], "the finer one, where it was seen"


def test_attempts_are_in_order_and_the_last_is_the_present_one() -> None:
    history = fold(*SECOND, *FIRST).of(J)
    assert history is not None
    assert [it.attempt for it in history.tasks] == [1, 2]
    assert [(it.attempt, it.state) for it in history.latest] == [(2, "Running")]


@given(life=st.sampled_from(LIVES), repeats=st.lists(st.integers(0, 3)), data=st.data())
def test_repeated_records_change_nothing(life: Any, repeats: Any, data: Any) -> None:
    """A log that is read again repeats the last records in order."""
    messages = [seen(state, second) for second, state in enumerate(life)]
    idempotency_cache, twice = fold(*messages), TaskHistories(1000)
    for position, message in enumerate(messages):
        twice.fold(record(message))
        for again in messages[data.draw(st.integers(0, position)) : position + 1]:
            twice.fold(record(again))
    assert idempotency_cache.of(J) == twice.of(J)


DELETED = batch.JobDeleted(job=J, uid="u1", at=at(20))


def test_a_deleted_job_is_remembered_and_reachable_by_uid_once_another_takes_its_name() -> None:
    kept = fold(*FIRST, DELETED, seen("Gone", 21))
    history = kept.of(J)
    assert history is not None
    assert (history.deleted_at, len(history.tasks), history.earlier) == (at(20), 1, ())
    kept.fold(record(seen("Pending", 30, "p9", uid="u2")))
    now, before = kept.of(J), kept.of(J, "u1")
    assert now is not None
    assert (now.uid, now.deleted_at, [it.pod for it in now.tasks]) == ("u2", None, ["p9"])
    assert now.earlier == ("u1",)
    assert before is not None
    assert (before.uid, before.tasks) == ("u1", history.tasks)
    assert kept.of(J, "u3") is None


def test_deleting_a_job_ends_its_open_attempts() -> None:
    """The deletion of its pod may never be reported; the attempt must not appear as running
    indefinitely.
    """
    history = fold(*SECOND, DELETED).of(J)
    assert history is not None
    (attempt,) = history.tasks
    assert (attempt.state, attempt.reason, attempt.ended_at) == ("Gone", "JobDeleted", at(20))
    assert attempt.is_over


def test_an_attempt_that_its_time_limit_ended_has_a_state_of_its_own() -> None:
    ended = seen("Gone", 13, "p2", attempt=2, reason="DeadlineExceeded")
    for order in ((*SECOND, ended, DELETED), (*SECOND, DELETED, ended)):
        history = fold(*order).of(J)
        assert history is not None
        assert [(it.state, it.reason) for it in history.tasks] == [("Timeout", "DeadlineExceeded")]


def test_the_first_attempt_waits_since_the_submission_of_its_job() -> None:
    """Pods are created when the job leaves its queue; later ones did not wait with it."""
    entered = batch.JobPhaseChanged(
        job=J, uid="u1", queue="q", before="", after="Pending", at=at(-60)
    )
    inqueue = msgspec.structs.replace(entered, before="Pending", after="Running", at=at(3))
    history = fold(entered, *FIRST, inqueue, *SECOND).of(J)
    assert history is not None
    assert [it.submitted_at for it in history.tasks] == [at(-60), at(10)]
    unknown = fold(*FIRST).of(J)
    assert unknown is not None
    assert [it.submitted_at for it in unknown.tasks] == [at(0)]


def test_the_end_of_an_attempt_counts_also_when_it_is_reported_after_the_deletion() -> None:
    late = seen("Failed", 19, "p2", exit_code=1, reason="Error", attempt=2)
    for order in ((*SECOND, DELETED, late), (*SECOND, late, DELETED)):
        history = fold(*order).of(J)
        assert history is not None
        (attempt,) = history.tasks
        assert (attempt.state, attempt.reason, attempt.exit_code) == ("Failed", "Error", 1)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 8), st.booleans()), min_size=1, max_size=60
    )
)
def test_the_history_is_bounded_and_live_jobs_are_kept_longest(steps: Any) -> None:
    kept = TaskHistories(6)
    gone: set[str] = set()
    for number, pod, is_deletion in steps:
        job = f"default/j{number}"
        if job in gone:
            continue
        if is_deletion:
            gone.add(job)
            kept.fold(record(batch.JobDeleted(job=job, uid=job, at=NOON)))
        else:
            kept.fold(record(seen("Pending", 0, f"{number}-{pod}", job=job, uid=job)))
            assert kept.of(job) is not None, "what was just told is kept"
        histories = [kept.of(f"default/j{each}") for each in range(6)]
        total = sum(len(it.tasks) for it in histories if it is not None)
        assert total <= 6 or sum(it is not None for it in histories) == 1


def entered(number: int, key: str = "") -> batch.JobPhaseChanged:
    key = key or f"default/j{number}"
    return batch.JobPhaseChanged(
        job=key, uid=f"u{number}", queue="q", before="", after="Pending", at=at(number)
    )


def test_jobs_that_never_get_a_pod_are_bounded_and_displace_no_attempt() -> None:
    """A user with rights on jobs alone can submit and delete any number of them."""
    kept = fold(*FIRST, limit=10)
    for number in range(100, 400):
        kept.fold(record(entered(number)))
        if number % 2:
            deletion = batch.JobDeleted(job=f"default/j{number}", uid=f"u{number}", at=at(number))
            kept.fold(record(deletion))
    assert len(kept) == 1 + 10
    first = kept.of(J)
    assert first is not None
    assert len(first.tasks) == 1
    assert kept.of("default/j399") is not None
    assert kept.of("default/j100") is None


def test_an_event_costs_the_same_however_many_jobs_there_were() -> None:
    """After a restart, two weeks of events are read on the event loop."""

    def cost_s(jobs: int) -> float:
        """CPU seconds of 100 more jobs of one name, each of which displaces an earlier one."""
        kept = TaskHistories(jobs)
        events = [
            record(seen("Pending", 0, f"p{number}", uid=f"u{number}"))
            for number in range(jobs + 100)
        ]
        for event in events[:jobs]:
            kept.fold(event)
        _, took_s = cpu_time.measured(lambda: deque(map(kept.fold, events[jobs:]), 0))
        return took_s

    small_s = min(cost_s(100) for _ in range(3))
    assert min(cost_s(5_000) for _ in range(2)) < 10 * small_s


@pytest.fixture
async def admission(cluster: EmbeddedCluster) -> AdmissionService:
    return AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)


async def test_rest_shows_present_attempts_and_on_request_past_ones(
    admission: AdmissionService, cluster: EmbeddedCluster, client: httpx.AsyncClient
) -> None:
    task = {"template": {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}}
    job = {"metadata": {"name": "j1"}, "spec": {"tasks": [{"name": "w", "replicas": 1, **task}]}}
    made = (await client.post("/v1/namespaces/default/jobs", json=job)).json()
    path = "/v1/namespaces/default/jobs/j1/tasks"
    async with shared_rest.client_of(admission, cluster) as requested:
        young = (await requested.get(path)).json()
        assert (young["tasks"], young["complete"]) == ([], False)
        for message in (*FIRST, *SECOND):
            fields = {"uid": made["metadata"]["uid"]}
            admission.task_histories.fold(record(msgspec.structs.replace(message, **fields)))
        admission.task_histories.is_complete = True
        now = (await requested.get(path)).json()
        assert [it["attempt"] for it in now["tasks"]] == [2]
        for query in ("?history", "?history=true"):
            past = (await requested.get(path + query)).json()
            assert [(it["attempt"], it["node"]) for it in past["tasks"]] == [(1, "n1"), (2, "n2")]
        await client.delete("/v1/namespaces/default/jobs/j1")
        assert len((await requested.get(path + "?history")).json()["tasks"]) == 2
        again = (await client.post("/v1/namespaces/default/jobs", json=job)).json()
        young = (await requested.get(path)).json()
        uids = (made["metadata"]["uid"], again["metadata"]["uid"])
        assert (young["earlier"], young["uid"]) == ([uids[0]], uids[1])
        assert len((await requested.get(f"{path}?history&uid={uids[0]}")).json()["tasks"]) == 2
        assert (await requested.get(f"{path}?uid=none")).status_code == 404
        absent = await requested.get("/v1/namespaces/default/jobs/none/tasks")
        assert absent.status_code == 404
