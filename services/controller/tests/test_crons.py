"""CronJobs: served times, retained jobs, and Events."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.controller.tests.support.core_harness import CoreHarness, KilledError
from services.controller.tests.support.scenarios import competitors_observed
from stromboli.controller.core import commands
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.workloads import child_jobs
from stromboli.shared import keys, topics
from stromboli.shared.api import flow, kinds
from stromboli.shared.messages import cluster as messages
from stromboli.testkit.builders import NOON, make_cron, make_job

C = "default/c"
ITEM = controller_cache.ReconcileKey("cron", C)
HOUR = 3600


def started(schedule: str = "0 * * * *", ttl: int | None = None, **fields: Any) -> CoreHarness:
    """CronJob ``c``, made at noon."""
    harness = CoreHarness()
    job = make_job(ttl_seconds_after_finished=ttl)
    harness.submit(make_cron("c", schedule, job, **fields))
    harness.settle()
    return harness


def go_on(harness: CoreHarness, seconds: float = HOUR) -> None:
    harness.wait(seconds)
    harness.settle()


def end(harness: CoreHarness, name: str, phase: str = "Succeeded") -> None:
    """A job ends."""
    harness.enqueue(harness.group_key(f"default/{name}"))
    harness.settle()
    harness.change_pod(f"default/{name}-worker-0", phase, "n1")
    harness.settle()


def name_at(at: datetime) -> str:
    return f"c-{int(at.timestamp()) // 60}"


def hours(*numbers: int) -> list[str]:
    """Names of the jobs for these hours after noon."""
    return [name_at(NOON + timedelta(hours=it)) for it in numbers]


def status(harness: CoreHarness) -> flow.CronJobStatus:
    return harness.get(kinds.CRON_JOBS, C).status


def said(harness: CoreHarness, reason: str) -> list[str]:
    return [event.message for event in harness.events.values() if event.reason == reason]


# Times


def test_a_job_is_created_when_its_time_has_come_and_not_before() -> None:
    harness = started()
    go_on(harness, HOUR - 1)
    assert not harness.names(kinds.JOBS)
    assert harness.due(ITEM) == NOON + timedelta(hours=1)
    go_on(harness, 1)
    assert harness.names(kinds.JOBS) == hours(1)
    go_on(harness)
    assert harness.names(kinds.JOBS) == hours(1, 2)


def test_the_time_at_which_it_was_created_is_not_served() -> None:
    assert started("0 12 * * *").due(ITEM) == NOON + timedelta(days=1)


def test_a_job_has_the_templates_marks_its_time_and_its_cron_as_owner() -> None:
    harness = started(labels={"team": "a"}, annotations={"note": "b"}, time_zone="Asia/Kathmandu")
    go_on(harness, 15 * 60)
    (name,) = harness.names(kinds.JOBS)
    assert name == name_at(NOON + timedelta(minutes=15))
    metadata = harness.objects["jobs", f"default/{name}"]["metadata"]
    assert metadata["labels"] == {"team": "a"}
    assert metadata["annotations"]["note"] == "b"
    assert metadata["annotations"][keys.CRON_SCHEDULED_AT] == "2026-01-01T18:00:00+05:45"
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("CronJob", "c", True)


def test_a_job_within_a_minute_is_named_by_its_second() -> None:
    harness = started("@every 90s")
    go_on(harness, 90)
    go_on(harness, 90)
    noon = int(NOON.timestamp())
    assert harness.names(kinds.JOBS) == sorted([f"c-{noon + 90}", f"c-{(noon + 180) // 60}"])


@pytest.mark.parametrize("schedule", ["@every 90s", "* * * * *"])
def test_the_time_of_a_job_is_in_its_name(schedule: str) -> None:
    harness = started(schedule)
    go_on(harness, 3 * 90)
    (name,) = harness.names(kinds.JOBS)
    found = child_jobs.scheduled_at(harness.get(kinds.CRON_JOBS, C), harness.job(f"default/{name}"))
    assert found == status(harness).last_schedule_time


def test_of_several_missed_times_only_the_last_is_served() -> None:
    harness = started()
    go_on(harness, 5.5 * HOUR)
    assert harness.names(kinds.JOBS) == hours(5)
    assert not said(harness, "TooManyMissedTimes")


def test_more_than_a_hundred_missed_times_are_reported() -> None:
    harness = started()
    go_on(harness, 101 * HOUR)
    assert harness.names(kinds.JOBS) == hours(101)
    assert said(harness, "TooManyMissedTimes")


def test_a_time_that_is_over_for_longer_than_the_deadline_is_not_served() -> None:
    harness = started("0 0 * * *", starting_deadline_seconds=60)
    go_on(harness, 12 * HOUR + 61)
    assert not harness.names(kinds.JOBS)
    assert "2026-01-02T00:00:00Z" in said(harness, "MissSchedule")[0]
    assert harness.due(ITEM) == NOON + timedelta(days=1.5)


def test_a_time_within_the_deadline_is_served_late() -> None:
    harness = started(starting_deadline_seconds=60)
    go_on(harness, HOUR + 60)
    assert harness.names(kinds.JOBS) == hours(1)


def test_a_suspended_cron_starts_nothing_and_serves_the_last_time_when_it_continues() -> None:
    harness = started(suspend=True)
    go_on(harness, 3 * HOUR)
    assert not harness.names(kinds.JOBS)
    assert harness.due(ITEM) is None
    edit(harness, suspend=False)
    assert harness.names(kinds.JOBS) == hours(3)


def edit(harness: CoreHarness, **spec: Any) -> None:
    body = harness.objects["cronjobs", C]
    harness.put(kinds.CRON_JOBS, body | {"spec": body["spec"] | spec})
    harness.settle()


@pytest.mark.parametrize(
    ("schedule", "zone", "reason"),
    [
        ("61 * * * *", None, "InvalidSchedule"),
        ("0 0 30 2 *", None, "InvalidSchedule"),
        ("0 * * * *", "Mars/Base", "InvalidTimeZone"),
    ],
)
def test_an_invalid_schedule_is_reported_and_starts_nothing(
    schedule: str, zone: str | None, reason: str
) -> None:
    harness = started(schedule, time_zone=zone)
    go_on(harness, 100 * HOUR)
    assert not harness.names(kinds.JOBS)
    assert len(said(harness, reason)) == 1
    assert harness.due(ITEM) is None


def test_a_clock_that_is_set_back_starts_nothing_twice() -> None:
    harness = started()
    go_on(harness, 2 * HOUR)
    go_on(harness, -1.5 * HOUR)
    assert said(harness, "ClockSetBack")
    go_on(harness, HOUR)
    assert harness.names(kinds.JOBS) == hours(2)
    go_on(harness, 1.5 * HOUR)
    assert harness.names(kinds.JOBS) == hours(2, 3)


def test_a_cron_of_another_scheduler_belongs_to_another_system() -> None:
    harness = CoreHarness()
    harness.submit(make_cron(job=make_job(scheduler="kueue")))
    go_on(harness, 2 * HOUR)
    assert not harness.names(kinds.JOBS)
    assert harness.due(ITEM) is None
    assert status(harness) == flow.CronJobStatus()


def test_a_job_of_another_owner_with_the_name_is_kept_and_reported() -> None:
    harness = started()
    harness.submit(make_job(hours(1)[0]))
    go_on(harness)
    assert harness.job(f"default/{hours(1)[0]}").metadata.controller is None
    assert "another owner" in said(harness, "FailedCreate")[0]


def test_a_time_with_an_existing_job_name_is_retried_with_backoff_and_reported() -> None:
    harness = started()
    taken = harness.submit(make_job(hours(1)[0]))
    go_on(harness)
    pauses, begin = [], harness.now
    while (at := harness.due(ITEM)) is not None and harness.now < begin + timedelta(minutes=50):
        pauses.append((at - harness.now).total_seconds())
        go_on(harness, pauses[-1])
    assert pauses[0] == 5
    assert pauses == sorted(pauses)
    assert len(pauses) < 20
    held = harness.get(kinds.CRON_JOBS, C).metadata.annotation(keys.HELD) or ""
    assert "FailedCreate: no job was started at 2026-01-01T13:00:00Z" in held
    harness.delete(kinds.JOBS, taken)
    go_on(harness, 300)
    assert harness.job(taken).metadata.controller is not None
    assert harness.get(kinds.CRON_JOBS, C).metadata.annotation(keys.HELD) is None


# Jobs that still run


def test_allow_lets_jobs_run_concurrently() -> None:
    harness = started(concurrency_policy="Allow")
    go_on(harness)
    go_on(harness)
    assert [it.name for it in status(harness).active] == hours(1, 2)


def test_forbid_waits_for_the_job_that_runs_and_serves_the_last_time_then() -> None:
    harness = started(concurrency_policy="Forbid")
    go_on(harness)
    go_on(harness)
    go_on(harness)
    assert harness.names(kinds.JOBS) == hours(1)
    assert len(said(harness, "ForbidConcurrent")) == 2
    assert harness.due(ITEM) == NOON + timedelta(hours=4)
    end(harness, hours(1)[0])
    assert harness.names(kinds.JOBS) == hours(1, 3)


def test_forbid_does_not_serve_a_time_beyond_its_deadline() -> None:
    harness = started(concurrency_policy="Forbid", starting_deadline_seconds=600)
    go_on(harness)
    go_on(harness, 1.5 * HOUR)
    end(harness, hours(1)[0])
    assert harness.names(kinds.JOBS) == hours(1)
    assert harness.due(ITEM) == NOON + timedelta(hours=3)


def test_replace_removes_the_job_that_runs_before_the_next_is_created() -> None:
    harness = started(concurrency_policy="Replace")
    go_on(harness)
    before = len(harness.done)
    go_on(harness)
    assert harness.names(kinds.JOBS) == hours(2)
    about_jobs = [it for it in harness.done[before:] if getattr(it, "kind", None) is kinds.JOBS]
    deleted, made = (it for it in about_jobs if isinstance(it, commands.Delete | commands.Create))
    assert (deleted.name, made.name) == (hours(1)[0], hours(2)[0])
    assert said(harness, "ReplaceConcurrent")
    assert [it.name for it in status(harness).active] == hours(2)


# Retention and Events


def test_the_status_has_active_jobs_and_the_times_of_schedule_and_success() -> None:
    harness = started()
    go_on(harness)
    (active,) = status(harness).active
    job = harness.job(f"default/{hours(1)[0]}")
    assert (active.kind, active.name, active.uid) == ("Job", job.metadata.name, job.metadata.uid)
    assert status(harness).last_schedule_time == NOON + timedelta(hours=1)
    assert status(harness).last_successful_time is None
    harness.wait(60)
    end(harness, job.metadata.name)
    assert status(harness).active == ()
    assert status(harness).last_successful_time == NOON + timedelta(hours=1, seconds=60)
    assert said(harness, "SawCompletedJob")


def test_the_last_success_stays_when_its_job_is_deleted() -> None:
    harness = started(successful_jobs_history_limit=0)
    go_on(harness)
    end(harness, hours(1)[0])
    assert not harness.names(kinds.JOBS)
    assert status(harness).last_successful_time == harness.now
    go_on(harness)
    end(harness, hours(2)[0], "Failed")
    assert status(harness).last_successful_time == NOON + timedelta(hours=1)


def test_the_oldest_finished_jobs_above_the_limits_are_removed() -> None:
    harness = started(successful_jobs_history_limit=2)
    for hour in range(1, 7):
        go_on(harness)
        end(harness, hours(hour)[0], "Failed" if hour in (1, 4) else "Succeeded")
    assert harness.names(kinds.JOBS) == hours(4, 5, 6)
    assert len(said(harness, "SuccessfulDelete")) == 3


def test_a_suspended_cron_is_cleaned_up() -> None:
    harness = started(successful_jobs_history_limit=1)
    for hour in (1, 2):
        go_on(harness)
        if hour == 2:
            edit(harness, suspend=True)
        end(harness, hours(hour)[0])
    assert harness.names(kinds.JOBS) == hours(2)


def test_a_terminated_job_counts_as_failed() -> None:
    harness = started(failed_jobs_history_limit=0)
    go_on(harness)
    name = hours(1)[0]
    body = harness.objects["jobs", f"default/{name}"]
    ended = body["status"] | {"state": {"phase": "Terminating"}}
    harness.put(kinds.JOBS, body | {"status": ended})
    harness.settle()
    assert not harness.names(kinds.JOBS)


# Once


def test_a_controller_that_is_killed_anywhere_creates_one_job_for_a_time() -> None:
    for most in range(30):
        harness = started(ttl=0)
        harness.wait(HOUR)
        harness.commands_left = most
        try:
            harness.settle()
        except KilledError:
            harness.restart()
        harness.commands_left = None
        harness.settle()
        (name,) = hours(1)
        assert harness.names(kinds.JOBS) == [name]
        end(harness, name)
        harness.restart()
        harness.settle()
        assert len(harness.made[f"default/{name}"]) == 1
        assert status(harness).last_schedule_time == NOON + timedelta(hours=1)


def test_a_controller_that_sees_an_old_cron_creates_nothing_from_it() -> None:
    harness = started(ttl=0)
    old = harness.shown(topics.CRON_JOBS.name)
    go_on(harness)
    end(harness, hours(1)[0])
    assert not harness.names(kinds.JOBS)
    harness.restart(old=old)
    while harness.dirty:
        harness.step(next(iter(harness.dirty)))
    harness.settle()
    assert not harness.names(kinds.JOBS)
    assert len(harness.made[f"default/{hours(1)[0]}"]) == 1


def test_a_job_that_lives_no_time_stays_until_its_cron_knows_its_end() -> None:
    harness = started(ttl=0)
    go_on(harness)
    name = hours(1)[0]
    harness.enqueue(harness.group_key(f"default/{name}"))
    harness.settle()
    harness.change_pod(f"default/{name}-worker-0", "Succeeded", "n1")
    harness.see()
    for _ in range(5):
        harness.step(controller_cache.ReconcileKey("job", f"default/{name}"))
        harness.see()
    assert harness.phase(f"default/{name}") == "Completed"
    harness.settle()
    assert not harness.names(kinds.JOBS)
    assert status(harness).last_successful_time == harness.now


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
    harness = started(schedule, ttl, concurrency_policy=policy)
    served: list[datetime] = []
    for seconds, what in steps:
        harness.wait(seconds)
        if what == "kill":
            harness.commands_left = abs(seconds) % 7
            try:
                harness.settle()
            except KilledError:
                harness.restart()
            harness.commands_left = None
        harness.settle()
        if what == "end":
            for active in status(harness).active:
                end(harness, active.name)
        served.append(status(harness).last_schedule_time or datetime(1970, 1, 1, tzinfo=UTC))
        if policy != "Allow":
            assert len(status(harness).active) <= 1
    assert served == sorted(served)
    assert all(len(uids) == 1 for uids in harness.made.values())


# Beside another system


def test_what_names_no_scheduler_is_left_to_another_system_while_it_acts() -> None:
    """Otherwise both would create its jobs. When the other system is gone, the last time starts a
    job.
    """
    harness = CoreHarness()
    harness.submit(make_cron("c", "0 * * * *", make_job(scheduler="")))
    harness.settle()
    rival = messages.Competitor(lease="v/l", holder="h", since="s", scheduler_name="theirs")
    harness.show(competitors_observed(harness, rival))
    harness.see()
    go_on(harness)
    assert harness.names(kinds.JOBS) == []
    harness.show(competitors_observed(harness))
    harness.see()
    harness.settle()
    assert harness.names(kinds.JOBS) == hours(1)


class Counting(CoreHarness):
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
    harness = Counting()
    limits: dict[str, Any] = {"successful_jobs_history_limit": 2, "failed_jobs_history_limit": 1}
    harness.submit(make_cron("c", "0 * * * *", make_job(), **limits))
    harness.settle()
    for hour in range(1, 9):
        go_on(harness)
        end(harness, hours(hour)[0], "Failed" if hour % 3 == 1 else "Succeeded")
    assert harness.most == {"Completed": 2, "Failed": 1}
