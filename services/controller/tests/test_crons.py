"""CronJobs: which times are served, which jobs are kept, what is said (spec/jobs.md 7.5)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.controller.tests.scenes import rivals_seen
from services.controller.tests.world import KilledError, World
from stromboli.controller.core import commands
from stromboli.controller.core.store import cache
from stromboli.controller.core.workloads import child_jobs
from stromboli.shared import keys, topics
from stromboli.shared.api import flow, kinds
from stromboli.shared.messages import cluster as messages
from stromboli.testkit.builders import NOON, make_cron, make_job

C = "default/c"
ITEM = cache.ReconcileKey("cron", C)
HOUR = 3600


def started(schedule: str = "0 * * * *", ttl: int | None = None, **fields: Any) -> World:
    """CronJob ``c``, made at noon."""
    world = World()
    job = make_job(ttl_seconds_after_finished=ttl)
    world.submit(make_cron("c", schedule, job, **fields))
    world.settle()
    return world


def go_on(world: World, seconds: float = HOUR) -> None:
    world.wait(seconds)
    world.settle()


def end(world: World, name: str, phase: str = "Succeeded") -> None:
    """A job comes to its end."""
    world.enqueue(world.group_key(f"default/{name}"))
    world.settle()
    world.change_pod(f"default/{name}-worker-0", phase, "n1")
    world.settle()


def name_at(at: datetime) -> str:
    return f"c-{int(at.timestamp()) // 60}"


def hours(*numbers: int) -> list[str]:
    """Names of the jobs of so many hours after noon."""
    return [name_at(NOON + timedelta(hours=it)) for it in numbers]


def status(world: World) -> flow.CronJobStatus:
    return world.get(kinds.CRON_JOBS, C).status


def said(world: World, reason: str) -> list[str]:
    return [event.message for event in world.events.values() if event.reason == reason]


# Times


def test_a_job_is_made_when_its_time_has_come_and_not_before() -> None:
    world = started()
    go_on(world, HOUR - 1)
    assert not world.names(kinds.JOBS)
    assert world.due(ITEM) == NOON + timedelta(hours=1)
    go_on(world, 1)
    assert world.names(kinds.JOBS) == hours(1)
    go_on(world)
    assert world.names(kinds.JOBS) == hours(1, 2)


def test_the_time_at_which_it_was_made_is_not_served() -> None:
    assert started("0 12 * * *").due(ITEM) == NOON + timedelta(days=1)


def test_a_job_has_the_templates_marks_its_time_and_its_cron_as_owner() -> None:
    world = started(labels={"team": "a"}, annotations={"note": "b"}, time_zone="Asia/Kathmandu")
    go_on(world, 15 * 60)
    (name,) = world.names(kinds.JOBS)
    assert name == name_at(NOON + timedelta(minutes=15))
    metadata = world.objects["jobs", f"default/{name}"]["metadata"]
    assert metadata["labels"] == {"team": "a"}
    assert metadata["annotations"]["note"] == "b"
    assert metadata["annotations"][keys.CRON_SCHEDULED_AT] == "2026-01-01T18:00:00+05:45"
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("CronJob", "c", True)


def test_a_job_within_a_minute_is_named_by_its_second() -> None:
    world = started("@every 90s")
    go_on(world, 90)
    go_on(world, 90)
    noon = int(NOON.timestamp())
    assert world.names(kinds.JOBS) == sorted([f"c-{noon + 90}", f"c-{(noon + 180) // 60}"])


@pytest.mark.parametrize("schedule", ["@every 90s", "* * * * *"])
def test_the_time_of_a_job_stands_in_its_name(schedule: str) -> None:
    world = started(schedule)
    go_on(world, 3 * 90)
    (name,) = world.names(kinds.JOBS)
    found = child_jobs.scheduled_at(world.get(kinds.CRON_JOBS, C), world.job(f"default/{name}"))
    assert found == status(world).last_schedule_time


def test_of_several_missed_times_only_the_last_is_served() -> None:
    world = started()
    go_on(world, 5.5 * HOUR)
    assert world.names(kinds.JOBS) == hours(5)
    assert not said(world, "TooManyMissedTimes")


def test_more_than_a_hundred_missed_times_are_told() -> None:
    world = started()
    go_on(world, 101 * HOUR)
    assert world.names(kinds.JOBS) == hours(101)
    assert said(world, "TooManyMissedTimes")


def test_a_time_that_is_over_for_longer_than_the_deadline_is_not_served() -> None:
    world = started("0 0 * * *", starting_deadline_seconds=60)
    go_on(world, 12 * HOUR + 61)
    assert not world.names(kinds.JOBS)
    assert "2026-01-02T00:00:00Z" in said(world, "MissSchedule")[0]
    assert world.due(ITEM) == NOON + timedelta(days=1.5)


def test_a_time_within_the_deadline_is_served_late() -> None:
    world = started(starting_deadline_seconds=60)
    go_on(world, HOUR + 60)
    assert world.names(kinds.JOBS) == hours(1)


def test_a_suspended_cron_starts_nothing_and_serves_the_last_time_when_it_goes_on() -> None:
    world = started(suspend=True)
    go_on(world, 3 * HOUR)
    assert not world.names(kinds.JOBS)
    assert world.due(ITEM) is None
    edit(world, suspend=False)
    assert world.names(kinds.JOBS) == hours(3)


def edit(world: World, **spec: Any) -> None:
    body = world.objects["cronjobs", C]
    world.put(kinds.CRON_JOBS, body | {"spec": body["spec"] | spec})
    world.settle()


@pytest.mark.parametrize(
    ("schedule", "zone", "reason"),
    [
        ("61 * * * *", None, "InvalidSchedule"),
        ("0 0 30 2 *", None, "InvalidSchedule"),
        ("0 * * * *", "Mars/Base", "InvalidTimeZone"),
    ],
)
def test_a_schedule_that_cannot_be_read_is_told_and_starts_nothing(
    schedule: str, zone: str | None, reason: str
) -> None:
    world = started(schedule, time_zone=zone)
    go_on(world, 100 * HOUR)
    assert not world.names(kinds.JOBS)
    assert len(said(world, reason)) == 1
    assert world.due(ITEM) is None


def test_a_clock_that_is_set_back_starts_nothing_twice() -> None:
    world = started()
    go_on(world, 2 * HOUR)
    go_on(world, -1.5 * HOUR)
    assert said(world, "ClockSetBack")
    go_on(world, HOUR)
    assert world.names(kinds.JOBS) == hours(2)
    go_on(world, 1.5 * HOUR)
    assert world.names(kinds.JOBS) == hours(2, 3)


def test_a_cron_of_another_scheduler_is_somebody_elses() -> None:
    world = World()
    world.submit(make_cron(job=make_job(scheduler="kueue")))
    go_on(world, 2 * HOUR)
    assert not world.names(kinds.JOBS)
    assert world.due(ITEM) is None
    assert status(world) == flow.CronJobStatus()


def test_the_job_of_somebody_else_under_a_name_is_left_alone_and_told() -> None:
    world = started()
    world.submit(make_job(hours(1)[0]))
    go_on(world)
    assert world.job(f"default/{hours(1)[0]}").metadata.controller is None
    assert "somebody else" in said(world, "FailedCreate")[0]


def test_a_time_whose_name_is_taken_is_looked_at_less_and_less_often_and_says_so() -> None:
    world = started()
    taken = world.submit(make_job(hours(1)[0]))
    go_on(world)
    pauses, begin = [], world.now
    while (at := world.due(ITEM)) is not None and world.now < begin + timedelta(minutes=50):
        pauses.append((at - world.now).total_seconds())
        go_on(world, pauses[-1])
    assert pauses[0] == 5
    assert pauses == sorted(pauses)
    assert len(pauses) < 20
    held = world.get(kinds.CRON_JOBS, C).metadata.annotation(keys.HELD) or ""
    assert "FailedCreate: not started at 2026-01-01T13:00:00Z" in held
    world.delete(kinds.JOBS, taken)
    go_on(world, 300)
    assert world.job(taken).metadata.controller is not None
    assert world.get(kinds.CRON_JOBS, C).metadata.annotation(keys.HELD) is None


# Jobs that still run


def test_allow_lets_jobs_run_beside_each_other() -> None:
    world = started(concurrency_policy="Allow")
    go_on(world)
    go_on(world)
    assert [it.name for it in status(world).active] == hours(1, 2)


def test_forbid_waits_for_the_job_that_runs_and_serves_the_last_time_then() -> None:
    world = started(concurrency_policy="Forbid")
    go_on(world)
    go_on(world)
    go_on(world)
    assert world.names(kinds.JOBS) == hours(1)
    assert len(said(world, "ForbidConcurrent")) == 2
    assert world.due(ITEM) == NOON + timedelta(hours=4)
    end(world, hours(1)[0])
    assert world.names(kinds.JOBS) == hours(1, 3)


def test_forbid_does_not_serve_a_time_beyond_its_deadline() -> None:
    world = started(concurrency_policy="Forbid", starting_deadline_seconds=600)
    go_on(world)
    go_on(world, 1.5 * HOUR)
    end(world, hours(1)[0])
    assert world.names(kinds.JOBS) == hours(1)
    assert world.due(ITEM) == NOON + timedelta(hours=3)


def test_replace_removes_the_job_that_runs_before_the_next_is_made() -> None:
    world = started(concurrency_policy="Replace")
    go_on(world)
    before = len(world.done)
    go_on(world)
    assert world.names(kinds.JOBS) == hours(2)
    about_jobs = [it for it in world.done[before:] if getattr(it, "kind", None) is kinds.JOBS]
    deleted, made = (it for it in about_jobs if isinstance(it, commands.Delete | commands.Create))
    assert (deleted.name, made.name) == (hours(1)[0], hours(2)[0])
    assert said(world, "ReplaceConcurrent")
    assert [it.name for it in status(world).active] == hours(2)


# What is kept and said


def test_the_status_says_what_runs_what_was_served_and_what_succeeded() -> None:
    world = started()
    go_on(world)
    (active,) = status(world).active
    job = world.job(f"default/{hours(1)[0]}")
    assert (active.kind, active.name, active.uid) == ("Job", job.metadata.name, job.metadata.uid)
    assert status(world).last_schedule_time == NOON + timedelta(hours=1)
    assert status(world).last_successful_time is None
    world.wait(60)
    end(world, job.metadata.name)
    assert status(world).active == ()
    assert status(world).last_successful_time == NOON + timedelta(hours=1, seconds=60)
    assert said(world, "SawCompletedJob")


def test_the_last_success_stays_when_its_job_is_gone() -> None:
    world = started(successful_jobs_history_limit=0)
    go_on(world)
    end(world, hours(1)[0])
    assert not world.names(kinds.JOBS)
    assert status(world).last_successful_time == world.now
    go_on(world)
    end(world, hours(2)[0], "Failed")
    assert status(world).last_successful_time == NOON + timedelta(hours=1)


def test_the_oldest_finished_jobs_above_the_limits_are_removed() -> None:
    world = started(successful_jobs_history_limit=2)
    for hour in range(1, 7):
        go_on(world)
        end(world, hours(hour)[0], "Failed" if hour in (1, 4) else "Succeeded")
    assert world.names(kinds.JOBS) == hours(4, 5, 6)
    assert len(said(world, "SuccessfulDelete")) == 3


def test_a_suspended_cron_is_cleaned_up_all_the_same() -> None:
    world = started(successful_jobs_history_limit=1)
    for hour in (1, 2):
        go_on(world)
        if hour == 2:
            edit(world, suspend=True)
        end(world, hours(hour)[0])
    assert world.names(kinds.JOBS) == hours(2)


def test_a_terminated_job_counts_as_failed() -> None:
    world = started(failed_jobs_history_limit=0)
    go_on(world)
    name = hours(1)[0]
    body = world.objects["jobs", f"default/{name}"]
    ended = body["status"] | {"state": {"phase": "Terminating"}}
    world.put(kinds.JOBS, body | {"status": ended})
    world.settle()
    assert not world.names(kinds.JOBS)


# Once


def test_a_controller_that_is_killed_anywhere_makes_one_job_for_a_time() -> None:
    for most in range(30):
        world = started(ttl=0)
        world.wait(HOUR)
        world.commands_left = most
        try:
            world.settle()
        except KilledError:
            world.restart()
        world.commands_left = None
        world.settle()
        (name,) = hours(1)
        assert world.names(kinds.JOBS) == [name]
        end(world, name)
        world.restart()
        world.settle()
        assert len(world.made[f"default/{name}"]) == 1
        assert status(world).last_schedule_time == NOON + timedelta(hours=1)


def test_a_controller_that_sees_an_old_cron_makes_nothing_from_it() -> None:
    world = started(ttl=0)
    old = world.shown(topics.CRON_JOBS.name)
    go_on(world)
    end(world, hours(1)[0])
    assert not world.names(kinds.JOBS)
    world.restart(old=old)
    while world.dirty:
        world.step(next(iter(world.dirty)))
    world.settle()
    assert not world.names(kinds.JOBS)
    assert len(world.made[f"default/{hours(1)[0]}"]) == 1


def test_a_job_that_lives_no_time_stays_until_its_cron_knows_its_end() -> None:
    world = started(ttl=0)
    go_on(world)
    name = hours(1)[0]
    world.enqueue(world.group_key(f"default/{name}"))
    world.settle()
    world.change_pod(f"default/{name}-worker-0", "Succeeded", "n1")
    world.see()
    for _ in range(5):
        world.step(cache.ReconcileKey("job", f"default/{name}"))
        world.see()
    assert world.phase(f"default/{name}") == "Completed"
    world.settle()
    assert not world.names(kinds.JOBS)
    assert status(world).last_successful_time == world.now


@given(
    st.lists(
        st.tuples(st.integers(-3 * HOUR, 5 * HOUR), st.sampled_from(["settle", "kill", "end"])),
        max_size=12,
    ),
    st.sampled_from(["*/7 * * * *", "0 * * * *", "@every 13m"]),
    st.sampled_from(["Allow", "Forbid", "Replace"]),
    st.sampled_from([None, 0, 3]),
)
def test_whatever_the_clock_does_no_time_is_served_twice_or_after_a_later_one(
    steps: list[tuple[int, str]], schedule: str, policy: str, ttl: int | None
) -> None:
    world = started(schedule, ttl, concurrency_policy=policy)
    served: list[datetime] = []
    for seconds, what in steps:
        world.wait(seconds)
        if what == "kill":
            world.commands_left = abs(seconds) % 7
            try:
                world.settle()
            except KilledError:
                world.restart()
            world.commands_left = None
        world.settle()
        if what == "end":
            for active in status(world).active:
                end(world, active.name)
        served.append(status(world).last_schedule_time or datetime(1970, 1, 1, tzinfo=UTC))
        if policy != "Allow":
            assert len(status(world).active) <= 1
    assert served == sorted(served)
    assert all(len(uids) == 1 for uids in world.made.values())


# Beside another system


def test_what_names_no_scheduler_is_left_to_another_system_while_it_acts() -> None:
    """Else both would make its jobs. Once the other has gone, the last time is served."""
    world = World()
    world.submit(make_cron("c", "0 * * * *", make_job(scheduler="")))
    world.settle()
    rival = messages.Rival(lease="v/l", holder="h", since="s", scheduler_name="theirs")
    world.show(rivals_seen(world, rival))
    world.see()
    go_on(world)
    assert world.names(kinds.JOBS) == []
    world.show(rivals_seen(world))
    world.see()
    world.settle()
    assert world.names(kinds.JOBS) == hours(1)


class Counting(World):
    """Counts finished jobs at each write."""

    def __init__(self) -> None:
        self.most = {"Completed": 0, "Failed": 0}
        super().__init__()

    def put(self, kind: kinds.Kind[Any], body: dict[str, Any]) -> None:
        super().put(kind, body)
        jobs = [self.job(f"default/{name}") for name in self.names(kinds.JOBS)]
        for phase, most in self.most.items():
            found = sum(job.status.state.phase == phase for job in jobs)
            self.most[phase] = max(most, found)


def test_no_limit_of_finished_jobs_is_exceeded_for_a_moment() -> None:
    """Tools that count jobs look at any moment."""
    world = Counting()
    limits: dict[str, Any] = {"successful_jobs_history_limit": 2, "failed_jobs_history_limit": 1}
    world.submit(make_cron("c", "0 * * * *", make_job(), **limits))
    world.settle()
    for hour in range(1, 9):
        go_on(world)
        end(world, hours(hour)[0], "Failed" if hour % 3 == 1 else "Succeeded")
    assert world.most == {"Completed": 2, "Failed": 1}
