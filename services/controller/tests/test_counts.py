"""Counts are held back while many change: nothing waits for them, and none is lost."""

import msgspec

from services.controller.tests.scenes import J, evict, finish, reap_all, submitted
from services.controller.tests.world import World
from stromboli.controller.core import commands
from stromboli.controller.core.store.cache import ReconcileKey
from stromboli.shared.api import batch
from stromboli.testkit.builders import make_command, make_job, make_task


def held_back(job: batch.Job) -> World:
    """A job whose pods run while no count is ever written."""
    world = submitted(job)
    world.counts_wait = True
    world.enqueue(world.group_key())
    world.settle()
    world.run()
    world.settle()
    return world


def released(world: World) -> batch.JobStatus:
    """What the status is once counts are written again."""
    world.counts_wait = False
    world.dirty[ReconcileKey("job", J)] = None
    world.settle()
    return world.job().status


def test_a_job_goes_all_its_way_and_its_end_has_the_counts() -> None:
    world = held_back(make_job(tasks=[make_task(replicas=3)]))
    assert world.phase() == "Running"
    finish(world, "Succeeded", "Succeeded", "Succeeded")
    status = world.job().status
    assert (status.state.phase, status.succeeded, status.running) == ("Completed", 3, 0)


def test_an_elastic_job_runs_with_the_least_it_needs_and_counts_what_comes_later() -> None:
    world = submitted(make_job(tasks=[make_task(replicas=3)], min_available=2))
    world.counts_wait = True
    world.enqueue(world.group_key())
    world.settle()
    names = world.pod_names()
    world.run(*names[:2])
    world.settle()
    assert world.phase() == "Running"
    world.run(names[2])
    world.settle()
    assert released(world).running == 3


def test_a_task_that_waits_for_another_begins() -> None:
    tasks = [make_task("first", 1), make_task("second", 1, depends_on=["first"])]
    world = held_back(make_job(tasks=tasks, min_available=1))
    assert world.pod_names() == ["j1-first-0", "j1-second-0"]


def test_the_result_of_an_index_makes_room_for_the_next() -> None:
    spec = batch.ArraySpec(indexes="0-9")
    world = held_back(make_job(tasks=[make_task("t", 2)], min_available=0, array=spec))
    assert world.pod_names() == ["j1-t-0", "j1-t-1"]
    world.change_pod("default/j1-t-0", "Succeeded")
    world.settle()
    assert "j1-t-2" in world.pod_names()


def test_pods_that_are_still_going_when_a_job_has_stopped_are_counted_out() -> None:
    world = held_back(make_job(tasks=[make_task(replicas=2)]))
    world.submit(make_command("stop", "AbortJob", world.job()))
    world.settle()
    reap_all(world)
    status = released(world)
    assert (status.state.phase, status.terminating, status.running) == ("Aborted", 0, 0)


def test_a_pod_that_goes_is_replaced() -> None:
    world = held_back(make_job(tasks=[make_task(replicas=2)], min_available=1))
    evict(world, "j1-worker-0")
    assert len(world.pod_names()) == 2


def test_a_phase_or_a_condition_of_a_pod_group_does_not_wait() -> None:
    world = held_back(make_job(tasks=[make_task(replicas=2)]))
    status = world.group().status
    assert (status.phase, [it.type for it in status.conditions]) == ("Running", ["Scheduled"])
    world.counts_wait = False
    world.dirty[ReconcileKey("podgroup", world.group_key())] = None
    world.settle()
    assert world.group().status.running == 2


def test_what_else_a_plan_says_is_done_in_the_same_order() -> None:
    job = make_job()
    status = msgspec.structs.replace(job.status, running=1)
    counts = commands.PatchJobStatus(job=job, status=status)
    state = batch.JobState(phase="Running")
    phase = commands.PatchJobStatus(job=job, status=msgspec.structs.replace(status, state=state))
    assert commands.without_counts(((counts,), (phase, counts), (counts,))) == ((phase,),)
