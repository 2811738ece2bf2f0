"""A controller that begins may know less of a job than the one before it did: that one saw its own
writes ahead of the topics, and the monitor may lag behind. What is not seen yet is not gone."""

from collections import deque

from services.controller.tests.scenes import J, enqueued, finish, running, submitted
from services.controller.tests.world import World
from stromboli.shared.api import batch as api
from stromboli.shared.api import kinds
from stromboli.shared.messages import batch
from stromboli.testkit.builders import make_job, make_task

PODS, JOBS = "cluster.pods", "cluster.jobs"
RESTARTED = [api.LifecyclePolicy(event="PodEvicted", action="RestartJob")]


def job() -> api.Job:
    return make_job(tasks=[make_task(replicas=2)], policies=RESTARTED)


def states(world: World) -> list[str]:
    told = [it for _, it in world.told if isinstance(it, batch.TaskChanged)]
    return [it.after for it in told]


def phases(world: World) -> list[str]:
    return [it.after for _, it in world.told if isinstance(it, batch.JobPhaseChanged)]


def act(world: World) -> None:
    """Every step, on what was seen until now."""
    while world.dirty:
        world.step(next(iter(world.dirty)))


def test_a_pod_that_was_told_of_before_its_topic_shows_it_has_not_vanished() -> None:
    world = enqueued(job())
    made = {pod.metadata.uid for pod in world.pods()}
    world.restart(without=PODS)
    world.settle()
    assert states(world) == ["Pending", "Pending"]
    assert (world.phase(), world.job().status.retry_count) == ("Pending", 0)
    assert {pod.metadata.uid for pod in world.pods()} == made
    world.run()
    world.settle()
    assert states(world)[2:] == ["Running", "Running"]


def test_a_pod_that_vanished_while_its_topic_was_late_is_told_once_and_policies_act() -> None:
    world = enqueued(job())
    old = world.shown(PODS)
    world.restart(without=PODS)
    world.unseen[PODS] = deque(old.values())
    world.reap(f"{J}-worker-0")
    act(world)
    assert states(world).count("Gone") == 1
    assert world.job().status.retry_count == 1
    world.settle()
    gone = [it for _, it in world.told if isinstance(it, batch.TaskChanged) and it.after == "Gone"]
    assert len({it.pod_uid for it in gone}) == len(gone), "late news tells nothing again"


def test_a_job_that_was_told_of_before_its_topic_shows_it_is_not_deleted() -> None:
    world = submitted(job())
    world.restart(without=JOBS)
    world.settle()
    assert [it for _, it in world.told if isinstance(it, batch.JobDeleted)] == []
    world.enqueue(world.group_key())
    world.settle()
    assert phases(world) == ["Pending"]


def test_a_job_that_is_gone_is_told_so_whether_its_topic_is_late_or_not() -> None:
    for old in (True, False):
        world = submitted(job())
        shown = world.shown(JOBS)
        world.delete(kinds.JOBS, J)
        world.restart(old=shown if old else None)
        world.settle()
        assert [it.job for _, it in world.told if isinstance(it, batch.JobDeleted)] == [J]


def test_nothing_is_told_backwards_by_a_picture_that_is_older_than_what_was_told() -> None:
    world = running(job())
    old = world.shown(JOBS) | world.shown(PODS)
    finish(world, "Succeeded", "Succeeded")
    told = (states(world), phases(world))
    assert told[1][-1] == "Completed"
    world.restart(old=old)
    act(world)
    assert (states(world), phases(world)) == told
    world.settle()
    assert (states(world), phases(world)) == told


def test_what_is_told_to_be_deleted_is_so_although_a_late_topic_shows_it() -> None:
    world = submitted(job())
    old = world.shown(JOBS)
    world.delete(kinds.JOBS, J)
    world.settle()
    told = list(world.told)
    world.restart(old=old)
    act(world)
    world.settle()
    assert world.told == told


def test_results_of_an_array_outlast_a_controller_that_knows_an_older_status() -> None:
    """Its pods are gone by then: the job alone knows them."""
    array = api.ArraySpec(indexes="0-3")
    world = running(make_job(tasks=[make_task(replicas=1)], array=array))
    old = world.shown(JOBS)
    finish(world, "Succeeded")
    world.reap(f"{J}-worker-0")
    world.settle()
    world.restart(old=old)
    act(world)
    progress = world.job().status.array
    assert progress is not None
    assert progress.succeeded == "0"
