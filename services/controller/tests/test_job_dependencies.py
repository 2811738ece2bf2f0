"""Dependencies between jobs: the start of a job, its Events until then, and retained jobs."""

from collections.abc import Callable

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import edit
from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.shared.jobspec import job_dependencies
from stromboli.testkit.builders import make_command, make_job, make_queue, make_task


def job(name: str, after: str = "", ttl_s: int | None = None) -> batch.Job:
    return make_job(
        name,
        tasks=[make_task("t", 1)],
        annotations={keys.AFTER: after} if after else {},
        ttl_seconds_after_finished=ttl_s,
    )


def with_jobs(*jobs: batch.Job) -> CoreHarness:
    harness = CoreHarness()
    for made in jobs:
        harness.submit(made)
    harness.settle()
    return harness


def said(harness: CoreHarness) -> set[tuple[str, str]]:
    """Reason and job of every Event so far."""
    return {(it.reason, it.name) for it in harness.events.values()}


def noted(harness: CoreHarness, name: str) -> str:
    """The recorded pending reason of the job."""
    return harness.job(f"default/{name}").metadata.annotation(keys.HELD) or ""


def run(harness: CoreHarness, name: str, end: str = "Succeeded") -> None:
    """Let a job start and end."""
    begin(harness, name)
    harness.change_pod(f"default/{name}-t-0", end, exit_code=int(end == "Failed"))
    harness.settle()


def begin(harness: CoreHarness, name: str) -> None:
    (group,) = [key for key in groups(harness) if key.startswith(f"default/{name}-")]
    harness.enqueue(group)
    harness.settle()
    harness.change_pod(f"default/{name}-t-0", "Running")
    harness.settle()


def groups(harness: CoreHarness) -> list[str]:
    return sorted(key for kind, key in harness.objects if kind == "podgroups")


def has_group(harness: CoreHarness, name: str) -> bool:
    return any(key.startswith(f"default/{name}-") for key in groups(harness))


@pytest.mark.parametrize(
    ("condition", "end", "begins"),
    [
        ("afterok", "Succeeded", True),
        ("afterok", "Failed", False),
        ("afternotok", "Failed", True),
        ("afternotok", "Succeeded", False),
        ("afterany", "Succeeded", True),
        ("afterany", "Failed", True),
    ],
)
def test_a_job_begins_when_the_other_has_ended_as_it_should(
    condition: str, end: str, *, begins: bool
) -> None:
    harness = with_jobs(job("a"), job("b", f"{condition}:a"))
    assert not has_group(harness, "b")
    assert ("WaitsForJob", "b") in said(harness)
    assert noted(harness, "b").startswith(f"WaitsForJob: {condition}:a: ")
    run(harness, "a", end)
    assert noted(harness, "b").startswith("" if begins else "NeverBegins: ")
    assert bool(noted(harness, "b")) != begins
    assert has_group(harness, "b") == begins
    assert (("NeverBegins", "b") in said(harness)) != begins


def test_after_waits_for_the_other_to_begin() -> None:
    harness = with_jobs(job("a"), job("b", "after:a"))
    assert not has_group(harness, "b")
    begin(harness, "a")
    assert has_group(harness, "b")


def test_all_conditions_have_to_hold() -> None:
    harness = with_jobs(job("a"), job("c"), job("b", "afterok:a:c"))
    run(harness, "a")
    assert not has_group(harness, "b")
    run(harness, "c")
    assert has_group(harness, "b")


def test_a_job_that_is_absent_never_counts_as_ended() -> None:
    harness = with_jobs(job("b", "afterany:a"))
    assert not has_group(harness, "b")
    harness.submit(job("a"))
    harness.settle()
    run(harness, "a")
    assert has_group(harness, "b")


def test_jobs_that_wait_for_each_other_are_reported() -> None:
    harness = with_jobs(job("a", "afterok:b"), job("b", "afterany:c"), job("c", "after:a"))
    assert groups(harness) == []
    assert {("Refused", name) for name in ("a", "b", "c")} <= said(harness)


def test_a_finished_job_stays_until_those_that_wait_for_it_have_begun() -> None:
    """Beyond its time to live; afterwards it is deleted, and the other job continues without it."""
    harness = with_jobs(job("a", ttl_s=0), job("d"), job("b", "afterok:a:d"))
    run(harness, "a")
    harness.wait(5)
    harness.settle()
    assert ("jobs", "default/a") in harness.objects
    run(harness, "d")
    harness.wait(5)
    harness.settle()
    assert ("jobs", "default/a") not in harness.objects
    begin(harness, "b")
    assert has_group(harness, "b")


def move(harness: CoreHarness) -> None:
    harness.submit(make_queue("other"))
    edit(harness, "default/b", queue="other")


def suspend_and_resume(harness: CoreHarness) -> None:
    for name, action in (("c1", "AbortJob"), ("c2", "ResumeJob")):
        harness.submit(make_command(name, action, harness.job("default/b")))
        harness.settle()


def lose_group(harness: CoreHarness) -> None:
    harness.delete(kinds.POD_GROUPS, groups(harness)[0])


@pytest.mark.parametrize("change", [move, suspend_and_resume, lose_group])
def test_a_job_whose_conditions_held_never_waits_again(
    change: Callable[[CoreHarness], None],
) -> None:
    """Its PodGroup is replaced before it has a pod, and the job that it waited for is deleted: that
    would never be there again."""
    harness = with_jobs(job("a", ttl_s=0), job("b", "afterok:a"))
    run(harness, "a")
    harness.wait(5)
    harness.settle()
    assert ("jobs", "default/a") not in harness.objects
    change(harness)
    harness.settle()
    assert (has_group(harness, "b"), noted(harness, "b")) == (True, "")


def test_that_conditions_hold_is_written_before_the_pod_group_is_created() -> None:
    """Otherwise a crash between the two could make the job wait for jobs that are deleted."""
    harness = with_jobs(job("a"))
    run(harness, "a")
    harness.submit(job("b", "afterok:a"))
    harness.see()
    while not harness.job("default/b").status.dependencies_met:
        assert not has_group(harness, "b")
        harness.step(ReconcileKey("job", "default/b"))
    harness.delete(kinds.JOBS, "default/a")
    harness.restart()
    harness.settle()
    assert has_group(harness, "b")


def test_a_job_that_was_suspended_before_its_conditions_held_waits_for_them() -> None:
    harness = with_jobs(job("a"), job("b", "afterok:a"))
    suspend_and_resume(harness)
    assert not has_group(harness, "b")
    run(harness, "a")
    assert has_group(harness, "b")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("later:a", "'later' is not a condition; write CONDITION:JOB"),
        ("afterok", "'afterok' names no job"),
        ("afterok:a::b", "names no job"),
        ("afterok:a?afterany", "'a\\?afterany' is not a valid job name"),
    ],
)
def test_an_invalid_dependency_is_reported_with_the_expected_form(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        job_dependencies.parse(text)


def test_repetitions_count_once() -> None:
    waits = job_dependencies.parse(" afterok:a:b, afterok:a ,, afterany:c")
    assert [(it.condition, it.job) for it in waits] == [
        ("afterok", "a"),
        ("afterok", "b"),
        ("afterany", "c"),
    ]
