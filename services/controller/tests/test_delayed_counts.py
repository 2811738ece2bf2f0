"""Counts are delayed while many change: nothing waits for them, and none is lost."""

import msgspec

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import J, evict, finish, reap_all, submitted
from stromboli.controller.core import commands
from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.shared.api import batch
from stromboli.testkit.builders import make_command, make_job, make_task


def held_back(job: batch.Job) -> CoreHarness:
    """A job whose pods run while writes of counts are delayed."""
    harness = submitted(job)
    harness.counts_wait = True
    harness.enqueue(harness.group_key())
    harness.settle()
    harness.run()
    harness.settle()
    return harness


def released(harness: CoreHarness) -> batch.JobStatus:
    """What the status is once counts are written again."""
    harness.counts_wait = False
    harness.dirty[ReconcileKey("job", J)] = None
    harness.settle()
    return harness.job().status


def test_a_job_goes_through_its_life_cycle_and_its_end_has_the_counts() -> None:
    harness = held_back(make_job(tasks=[make_task(replicas=3)]))
    assert harness.phase() == "Running"
    finish(harness, "Succeeded", "Succeeded", "Succeeded")
    status = harness.job().status
    assert (status.state.phase, status.succeeded, status.running) == ("Completed", 3, 0)


def test_an_elastic_job_runs_with_the_least_it_needs_and_counts_what_comes_later() -> None:
    harness = submitted(make_job(tasks=[make_task(replicas=3)], min_available=2))
    harness.counts_wait = True
    harness.enqueue(harness.group_key())
    harness.settle()
    names = harness.pod_names()
    harness.run(*names[:2])
    harness.settle()
    assert harness.phase() == "Running"
    harness.run(names[2])
    harness.settle()
    assert released(harness).running == 3


def test_a_task_that_waits_for_another_begins() -> None:
    tasks = [make_task("first", 1), make_task("second", 1, depends_on=["first"])]
    harness = held_back(make_job(tasks=tasks, min_available=1))
    assert harness.pod_names() == ["j1-first-0", "j1-second-0"]


def test_the_result_of_an_index_makes_room_for_the_next() -> None:
    spec = batch.ArraySpec(indexes="0-9")
    harness = held_back(make_job(tasks=[make_task("t", 2)], min_available=0, array=spec))
    assert harness.pod_names() == ["j1-t-0", "j1-t-1"]
    harness.change_pod("default/j1-t-0", "Succeeded")
    harness.settle()
    assert "j1-t-2" in harness.pod_names()


def test_pods_that_are_still_going_when_a_job_has_stopped_are_counted_out() -> None:
    harness = held_back(make_job(tasks=[make_task(replicas=2)]))
    harness.submit(make_command("stop", "AbortJob", harness.job()))
    harness.settle()
    reap_all(harness)
    status = released(harness)
    assert (status.state.phase, status.terminating, status.running) == ("Aborted", 0, 0)


def test_a_pod_that_goes_is_replaced() -> None:
    harness = held_back(make_job(tasks=[make_task(replicas=2)], min_available=1))
    evict(harness, "j1-worker-0")
    assert len(harness.pod_names()) == 2


def test_a_phase_or_a_condition_of_a_pod_group_does_not_wait() -> None:
    harness = held_back(make_job(tasks=[make_task(replicas=2)]))
    status = harness.group().status
    assert (status.phase, [it.type for it in status.conditions]) == ("Running", ["Scheduled"])
    harness.counts_wait = False
    harness.dirty[ReconcileKey("podgroup", harness.group_key())] = None
    harness.settle()
    assert harness.group().status.running == 2


def test_what_else_a_plan_reports_is_done_in_the_same_order() -> None:
    job = make_job()
    status = msgspec.structs.replace(job.status, running=1)
    counts = commands.PatchJobStatus(job=job, status=status)
    state = batch.JobState(phase="Running")
    phase = commands.PatchJobStatus(job=job, status=msgspec.structs.replace(status, state=state))
    assert commands.without_counts(((counts,), (phase, counts), (counts,))) == ((phase,),)
