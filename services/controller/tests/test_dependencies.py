"""Tasks that wait for others, together with the gang."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import (
    J,
    enqueued,
    evict,
    fail,
    go_on,
    reap_all,
    submitted,
)
from stromboli.controller.core.tasks import dependencies, tasks
from stromboli.shared.api import batch, kinds
from stromboli.testkit.builders import make_command, make_job, make_task


def waits(name: str, replicas: int, *others: str, any_: bool = False) -> batch.TaskSpec:
    on = batch.DependsOn(name=others, iteration="any" if any_ else "")
    return (
        make_task(name, replicas, min_available=replicas)
        if not others
        else _with(make_task(name, replicas, min_available=replicas), on)
    )


def _with(task: batch.TaskSpec, on: batch.DependsOn) -> batch.TaskSpec:
    return msgspec.structs.replace(task, depends_on=on)


def two_waves() -> batch.Job:
    """One pod of ``first``; three of ``second`` wait for it; all four are the gang."""
    return make_job(tasks=[waits("second", 3, "first"), waits("first", 1)])


def run(harness: CoreHarness, *names: str) -> None:
    harness.run(*names)
    harness.settle()


def let_in(harness: CoreHarness) -> None:
    harness.enqueue(harness.group_key())
    harness.settle()


def test_only_tasks_that_wait_for_none_have_pods_and_are_the_gang_at_first() -> None:
    harness = enqueued(two_waves())
    assert harness.pod_names() == ["j1-first-0"]
    spec = harness.group().spec
    assert (spec.min_member, spec.min_task_member) == (1, {"first": 1})
    assert spec.min_resources is not None
    assert spec.min_resources["cpu"] == "1", "room is asked for what may run now"


def test_a_later_wave_comes_when_what_it_waits_for_is_ready_and_enlarges_the_gang() -> None:
    harness = enqueued(two_waves())
    harness.change_pod("default/j1-first-0", "Pending", "n1")
    harness.settle()
    assert harness.group().spec.min_member == 1
    run(harness, "j1-first-0")
    let_in(harness)
    assert harness.pod_names() == ["j1-first-0", "j1-second-0", "j1-second-1", "j1-second-2"]
    assert harness.group().spec.min_member == 4
    assert harness.phase() == "Running", "the first wave runs; the second one waits for room"
    run(harness, "j1-second-0", "j1-second-1", "j1-second-2")
    assert harness.job().status.running == 4


def test_a_pod_whose_containers_are_not_ready_does_not_count() -> None:
    harness = enqueued(two_waves())
    harness.change_pod(
        "default/j1-first-0",
        "Running",
        "n1",
        containerStatuses=[{"name": "main", "ready": False, "state": {}}],
    )
    harness.settle()
    assert harness.group().spec.min_member == 1
    harness.change_pod(
        "default/j1-first-0", containerStatuses=[{"name": "main", "ready": True, "state": {}}]
    )
    harness.settle()
    let_in(harness)
    assert len(harness.pod_names()) == 4


@pytest.mark.parametrize(("any_", "pods"), [(True, 3), (False, 2)])
def test_a_task_waits_for_any_or_for_all(any_: bool, pods: int) -> None:
    last = waits("last", 1, "a", "b", any_=any_)
    harness = enqueued(make_job(tasks=[waits("a", 1), waits("b", 1), last]))
    run(harness, "j1-a-0")
    let_in(harness)
    assert len(harness.pod_names()) == pods


def test_a_terminating_pod_does_not_count() -> None:
    harness = enqueued(two_waves())
    harness.delete(kinds.PODS, "default/j1-first-0")
    run(harness, "j1-first-0")
    assert harness.group().spec.min_member == 1


def test_what_has_succeeded_is_ready_too() -> None:
    harness = enqueued(two_waves())
    harness.change_pod("default/j1-first-0", "Succeeded")
    harness.settle()
    let_in(harness)
    run(harness, "j1-second-0", "j1-second-1", "j1-second-2")
    for name in ("j1-second-0", "j1-second-1", "j1-second-2"):
        harness.change_pod(f"default/{name}", "Succeeded")
    harness.settle()
    assert (harness.phase(), harness.job().status.succeeded) == ("Completed", 4)


def test_a_job_fails_once_what_a_task_waits_for_has_ended_short() -> None:
    tasks = [waits("a", 1), waits("b", 1, "a"), waits("c", 1, "b"), waits("d", 1)]
    harness = enqueued(make_job(tasks=tasks))
    run(harness, "j1-d-0")
    fail(harness, "j1-a-0")
    assert harness.phase() == "Running", "the other task runs on"
    harness.change_pod("default/j1-d-0", "Succeeded")
    harness.settle()
    assert (harness.phase(), harness.pod_names()) == ("Failed", ["j1-a-0", "j1-d-0"])


def test_pods_that_run_stay_when_what_they_waited_for_goes_and_the_gang_stays_whole() -> None:
    harness = enqueued(two_waves())
    run(harness, "j1-first-0")
    let_in(harness)
    run(harness, "j1-second-0", "j1-second-1", "j1-second-2")
    evict(harness, "j1-first-0")
    assert harness.group().spec.min_member == 4
    assert {"j1-second-0", "j1-second-1", "j1-second-2"} < {*harness.pod_names(), "j1-first-0"}
    evict(harness, "j1-second-0")
    let_in(harness)
    assert "j1-second-0" in harness.pod_names(), "its task has been released once"


def test_a_restarted_job_begins_with_its_first_wave_again() -> None:
    harness = enqueued(two_waves())
    run(harness, "j1-first-0")
    let_in(harness)
    run(harness, "j1-second-0", "j1-second-1", "j1-second-2")
    harness.submit(make_command("c1", "RestartJob", harness.job()))
    harness.settle()
    reap_all(harness)
    let_in(harness)
    assert harness.pod_names() == ["j1-first-0"]
    assert harness.group().spec.min_member == 1


def test_pods_that_succeed_while_a_restart_deletes_them_release_no_task_of_it() -> None:
    """They exist until their kubelet has removed them, and the new PodGroup may come before: it
    must not wait for pods of a later wave."""
    first, second = waits("first", 1), waits("second", 2, "first")
    restarts = (batch.LifecyclePolicy(event="PodFailed", action="RestartJob"),)
    harness = enqueued(make_job(tasks=[second, first], policies=restarts))
    run(harness, "j1-first-0")
    let_in(harness)
    run(harness, "j1-second-0", "j1-second-1")
    fail(harness, "j1-first-0")
    harness.change_pod("default/j1-second-1", "Succeeded")
    harness.settle()
    job, pods = harness.job(), harness.cache.pods_of(harness.job())
    assert job.status.version == 1
    assert [(it.metadata.name, it.status.phase) for it in pods if tasks.has_finished(it)] == [
        ("j1-first-0", "Failed"),
        ("j1-second-1", "Succeeded"),
    ]
    assert dependencies.released(harness.cache, job, pods) == {"first"}


def test_the_next_controller_continues_with_the_same_wave() -> None:
    harness = enqueued(two_waves())
    run(harness, "j1-first-0")
    harness.restart()
    harness.settle()
    let_in(harness)
    harness.restart()
    harness.settle()
    assert len(harness.pod_names()) == 4
    go_on(harness)
    assert harness.job().status.running == 4


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ([waits("a", 1, "b"), waits("b", 1, "a")], "tasks wait for each other: a, b"),
        (
            [waits("a", 1), waits("b", 1, "c")],
            "dependsOn names tasks that the job does not have: c",
        ),
    ],
    ids=["cycle", "no such task"],
)
def test_a_job_that_can_never_start_is_reported_and_gets_no_pods(
    tasks: list[batch.TaskSpec], why: str
) -> None:
    """Including one that was in the cluster before, to which the rules of admission do
    not apply.
    """
    assert dependencies.problem(make_job(tasks=tasks)) == why
    harness = submitted(make_job(tasks=tasks))
    assert ("podgroups", harness.group_key(J)) not in harness.objects
    assert (harness.phase(), harness.reasons()) == ("Pending", ["Pending", "Refused"])


@pytest.mark.parametrize(
    ("requested", "released", "gang"),
    [
        (9, {"a"}, 5),
        (9, {"a", "b"}, 9),
        (12, {"a"}, 8),
        (2, {"a"}, 2),
        (2, {"b"}, 2),
        (14, {"b"}, 4),
    ],
)
def test_the_gang_of_a_wave_is_what_is_asked_without_what_waits(
    requested: int, released: set[str], gang: int
) -> None:
    tasks = [make_task("a", 10, min_available=5), make_task("b", 4, min_available=4)]
    job = make_job(tasks=tasks, min_available=requested)
    assert dependencies.gang(job, frozenset(released)) == gang


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4),
    st.integers(0, 20),
    st.data(),
)
def test_a_gang_never_asks_for_more_than_can_be_made_nor_grows_beyond_the_jobs(
    sizes: list[tuple[int, int]], requested: int, data: st.DataObject
) -> None:
    tasks = [
        make_task(f"t{at}", max(least, replicas), min_available=min(least, replicas))
        for at, (least, replicas) in enumerate(sizes)
    ]
    job = make_job(tasks=tasks, min_available=min(requested, sum(it.replicas for it in tasks)))
    released = data.draw(st.sets(st.sampled_from([it.name for it in tasks])))
    gang = dependencies.gang(job, frozenset(released))
    assert 0 <= gang <= sum(it.replicas for it in tasks if it.name in released)
    everything = dependencies.gang(job, frozenset(it.name for it in tasks))
    assert gang <= everything
