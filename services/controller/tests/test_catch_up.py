"""A new controller may know less of a job than the previous one, which had its own writes before
the topics had them, and the monitor may lag behind. An object that is not in the cache yet is not
deleted.
"""

from collections import deque

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import J, enqueued, finish, running, submitted
from stromboli.shared.api import batch as api
from stromboli.shared.api import kinds
from stromboli.shared.messages import batch
from stromboli.testkit.builders import make_job, make_task

PODS, JOBS = "cluster.pods", "cluster.jobs"
RESTARTED = [api.LifecyclePolicy(event="PodEvicted", action="RestartJob")]


def job() -> api.Job:
    return make_job(tasks=[make_task(replicas=2)], policies=RESTARTED)


def states(harness: CoreHarness) -> list[str]:
    sent = [it for _, it in harness.sent if isinstance(it, batch.TaskChanged)]
    return [it.after for it in sent]


def phases(harness: CoreHarness) -> list[str]:
    return [it.after for _, it in harness.sent if isinstance(it, batch.JobPhaseChanged)]


def act(harness: CoreHarness) -> None:
    """Every step, on what was seen until now."""
    while harness.dirty:
        harness.step(next(iter(harness.dirty)))


def test_a_pod_that_was_published_before_its_topic_shows_it_has_not_vanished() -> None:
    harness = enqueued(job())
    made = {pod.metadata.uid for pod in harness.pods()}
    harness.restart(without=PODS)
    harness.settle()
    assert states(harness) == ["Pending", "Pending"]
    assert (harness.phase(), harness.job().status.retry_count) == ("Pending", 0)
    assert {pod.metadata.uid for pod in harness.pods()} == made
    harness.run()
    harness.settle()
    assert states(harness)[2:] == ["Running", "Running"]


def test_a_pod_that_vanished_while_its_topic_was_late_is_reported_once_and_policies_act() -> None:
    harness = enqueued(job())
    old = harness.shown(PODS)
    harness.restart(without=PODS)
    harness.unseen[PODS] = deque(old.values())
    harness.reap(f"{J}-worker-0")
    act(harness)
    assert states(harness).count("Gone") == 1
    assert harness.job().status.retry_count == 1
    harness.settle()
    gone = [
        it for _, it in harness.sent if isinstance(it, batch.TaskChanged) and it.after == "Gone"
    ]
    assert len({it.pod_uid for it in gone}) == len(gone), "late news tells nothing again"


def test_a_job_that_was_published_before_its_topic_shows_it_is_not_deleted() -> None:
    harness = submitted(job())
    harness.restart(without=JOBS)
    harness.settle()
    assert [it for _, it in harness.sent if isinstance(it, batch.JobDeleted)] == []
    harness.enqueue(harness.group_key())
    harness.settle()
    assert phases(harness) == ["Pending"]


def test_a_deleted_job_is_published_as_deleted_with_a_late_topic_too() -> None:
    for old in (True, False):
        harness = submitted(job())
        records = harness.shown(JOBS)
        harness.delete(kinds.JOBS, J)
        harness.restart(old=records if old else None)
        harness.settle()
        assert [it.job for _, it in harness.sent if isinstance(it, batch.JobDeleted)] == [J]


def test_a_cache_older_than_published_events_publishes_nothing() -> None:
    harness = running(job())
    old = harness.shown(JOBS) | harness.shown(PODS)
    finish(harness, "Succeeded", "Succeeded")
    sent = (states(harness), phases(harness))
    assert sent[1][-1] == "Completed"
    harness.restart(old=old)
    act(harness)
    assert (states(harness), phases(harness)) == sent
    harness.settle()
    assert (states(harness), phases(harness)) == sent


def test_a_job_published_as_deleted_is_deleted_despite_a_late_topic() -> None:
    harness = submitted(job())
    old = harness.shown(JOBS)
    harness.delete(kinds.JOBS, J)
    harness.settle()
    sent = list(harness.sent)
    harness.restart(old=old)
    act(harness)
    harness.settle()
    assert harness.sent == sent


def test_results_of_an_array_outlast_a_controller_that_knows_an_older_status() -> None:
    """Its pods are deleted by then: only the job has the results."""
    array = api.ArraySpec(indexes="0-3")
    harness = running(make_job(tasks=[make_task(replicas=1)], array=array))
    old = harness.shown(JOBS)
    finish(harness, "Succeeded")
    harness.reap(f"{J}-worker-0")
    harness.settle()
    harness.restart(old=old)
    act(harness)
    progress = harness.job().status.array
    assert progress is not None
    assert progress.succeeded == "0"
