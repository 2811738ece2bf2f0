"""Jobs that wait for others: when they begin, what is said meanwhile, and what stays for them."""

import pytest

from services.controller.tests.world import World
from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.jobspec import job_order
from stromboli.testkit.builders import make_job, make_task


def job(name: str, after: str = "", ttl_s: int | None = None) -> batch.Job:
    return make_job(
        name,
        tasks=[make_task("t", 1)],
        annotations={keys.AFTER: after} if after else {},
        ttl_seconds_after_finished=ttl_s,
    )


def with_jobs(*jobs: batch.Job) -> World:
    world = World()
    for made in jobs:
        world.submit(made)
    world.settle()
    return world


def said(world: World) -> set[tuple[str, str]]:
    """Reason and job of every Event so far."""
    return {(it.reason, it.name) for it in world.events.values()}


def noted(world: World, name: str) -> str:
    """What stands on the job of what keeps it from beginning."""
    return world.job(f"default/{name}").metadata.annotation(keys.HELD) or ""


def run(world: World, name: str, end: str = "Succeeded") -> None:
    """Let a job begin and end."""
    begin(world, name)
    world.change_pod(f"default/{name}-t-0", end, exit_code=int(end == "Failed"))
    world.settle()


def begin(world: World, name: str) -> None:
    (group,) = [key for key in groups(world) if key.startswith(f"default/{name}-")]
    world.enqueue(group)
    world.settle()
    world.change_pod(f"default/{name}-t-0", "Running")
    world.settle()


def groups(world: World) -> list[str]:
    return sorted(key for kind, key in world.objects if kind == "podgroups")


def has_group(world: World, name: str) -> bool:
    return any(key.startswith(f"default/{name}-") for key in groups(world))


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
    world = with_jobs(job("a"), job("b", f"{condition}:a"))
    assert not has_group(world, "b")
    assert ("WaitsForJob", "b") in said(world)
    assert noted(world, "b").startswith(f"WaitsForJob: {condition}:a: ")
    run(world, "a", end)
    assert noted(world, "b").startswith("" if begins else "NeverBegins: ")
    assert bool(noted(world, "b")) != begins
    assert has_group(world, "b") == begins
    assert (("NeverBegins", "b") in said(world)) != begins


def test_after_waits_for_the_other_to_begin() -> None:
    world = with_jobs(job("a"), job("b", "after:a"))
    assert not has_group(world, "b")
    begin(world, "a")
    assert has_group(world, "b")


def test_all_conditions_have_to_hold() -> None:
    world = with_jobs(job("a"), job("c"), job("b", "afterok:a:c"))
    run(world, "a")
    assert not has_group(world, "b")
    run(world, "c")
    assert has_group(world, "b")


def test_a_job_that_is_not_there_never_counts_as_ended() -> None:
    world = with_jobs(job("b", "afterany:a"))
    assert not has_group(world, "b")
    world.submit(job("a"))
    world.settle()
    run(world, "a")
    assert has_group(world, "b")


def test_jobs_that_wait_for_each_other_say_so() -> None:
    world = with_jobs(job("a", "afterok:b"), job("b", "afterany:c"), job("c", "after:a"))
    assert groups(world) == []
    assert {("Refused", name) for name in ("a", "b", "c")} <= said(world)


def test_a_finished_job_stays_until_those_that_wait_for_it_have_begun() -> None:
    """Whatever its time to live; afterwards it goes, and the other runs on without it."""
    world = with_jobs(job("a", ttl_s=0), job("d"), job("b", "afterok:a:d"))
    run(world, "a")
    world.wait(5)
    world.settle()
    assert ("jobs", "default/a") in world.objects
    run(world, "d")
    world.wait(5)
    world.settle()
    assert ("jobs", "default/a") not in world.objects
    begin(world, "b")
    assert has_group(world, "b")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("later:a", "'later' is no condition; write afterok:JOB"),
        ("afterok", "'afterok' names no job"),
        ("afterok:a::b", "names no job"),
        ("afterok:a?afterany", "'a\\?afterany' is no job's name"),
    ],
)
def test_what_cannot_be_read_says_how_to_write_it(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        job_order.parse(text)


def test_repetitions_count_once() -> None:
    waits = job_order.parse(" afterok:a:b, afterok:a ,, afterany:c")
    assert [(it.condition, it.job) for it in waits] == [
        ("afterok", "a"),
        ("afterok", "b"),
        ("afterany", "c"),
    ]
