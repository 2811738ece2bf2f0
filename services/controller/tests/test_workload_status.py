"""JobFlows and CronJobs: created and retained jobs, Events, and status."""

from typing import Any

import msgspec
import pytest

from services.controller.tests import test_crons, test_flows
from services.controller.tests.support.core_harness import CoreHarness
from stromboli.shared import keys, topics
from stromboli.shared.api import flow, kinds
from stromboli.testkit.builders import make_flow, undecodable_record


def test_a_job_that_is_not_made_yet_is_in_no_list() -> None:
    harness = test_flows.started({"a": [], "b": ["a"]})
    status = test_flows.found(harness).status
    assert (status.pending_jobs, status.un_know_jobs) == (("f-a",), ())
    assert [it.name for it in status.job_status_list] == ["f-a"]


@pytest.mark.parametrize("phase", ["Completing", "Terminating"])
def test_a_job_that_is_being_ended_is_in_no_list(phase: str) -> None:
    harness = test_flows.started({"a": []})
    test_flows.run(harness, "f-a")
    harness.put(kinds.JOBS, test_flows.with_phase(harness, "f-a", phase))
    harness.settle()
    status = msgspec.to_builtins(test_flows.found(harness).status)
    assert [name for name, jobs in status.items() if name.endswith("Jobs") and jobs] == []
    assert status["jobStatusList"][0]["state"] == phase


def test_what_became_of_a_job_stays_in_the_status_when_it_is_deleted() -> None:
    harness = test_flows.started({"a": [], "b": ["a"]})
    test_flows.end(harness, "f-a")
    before = test_flows.found(harness).status
    harness.delete(kinds.JOBS, "default/f-a")
    harness.settle()
    after = test_flows.found(harness).status
    assert after.conditions["f-a"] == before.conditions["f-a"]
    assert after.job_status_list[0] == before.job_status_list[0]


def test_the_jobs_of_a_flow_that_failed_stay_to_be_looked_at() -> None:
    harness = test_flows.started({"a": []}, retain="delete")
    test_flows.end(harness, "f-a", "Failed")
    assert (test_flows.phase(harness), harness.names(kinds.JOBS)) == ("Failed", ["f-a"])


@pytest.mark.parametrize(("letters", "has_label"), [(55, True), (56, False)])
def test_a_mark_that_is_too_long_for_a_label_is_an_annotation_alone(
    letters: int, has_label: bool
) -> None:
    name = "t" * letters
    harness = test_flows.started({name: []})
    metadata = harness.job(f"default/f-{name}").metadata
    assert metadata.annotation(keys.CREATED_BY_TEMPLATE) == f"default.{name}"
    assert (keys.CREATED_BY_TEMPLATE in (metadata.labels or {})) == has_label


def test_a_cron_keeps_three_jobs_that_succeeded_and_one_that_failed_by_default() -> None:
    harness = test_crons.started()
    for hour in range(1, 8):
        test_crons.go_on(harness)
        phase = "Failed" if hour in (1, 2) else "Succeeded"
        test_crons.end(harness, test_crons.hours(hour)[0], phase)
    assert harness.names(kinds.JOBS) == test_crons.hours(2, 5, 6, 7)
    assert test_crons.status(harness).last_successful_time == harness.now


def test_a_cron_has_events_for_each_created_and_ended_job() -> None:
    harness = test_crons.started()
    assert test_crons.status(harness).last_schedule_time is None
    first, second = test_crons.hours(1, 2)
    test_crons.go_on(harness)
    test_crons.go_on(harness)
    test_crons.end(harness, first)
    assert test_crons.said(harness, "SuccessfulCreate") == [
        f"created job {first}",
        f"created job {second}",
    ]
    assert test_crons.said(harness, "SawCompletedJob") == [f"job {first} is Completed"]
    sent = {it.reason for it in harness.events.values() if it.name == "c"}
    assert sent == {"SuccessfulCreate", "SawCompletedJob"}


def going(harness: CoreHarness, kind: kinds.Kind[Any], key: str) -> None:
    """It is being deleted, and stays until all its dependents are deleted."""
    body = harness.objects[kind.plural, key]
    metadata = body["metadata"] | {"deletionTimestamp": harness.now.isoformat()}
    harness.put(kind, body | {"metadata": metadata})
    harness.settle()


def test_a_flow_and_a_cron_that_are_going_make_no_more_jobs() -> None:
    harness = test_flows.started({"a": [], "b": ["a"]})
    going(harness, kinds.JOB_FLOWS, test_flows.F)
    test_flows.end(harness, "f-a")
    assert harness.names(kinds.JOBS) == ["f-a"]
    harness = test_crons.started()
    going(harness, kinds.CRON_JOBS, test_crons.C)
    harness.wait(test_crons.HOUR)
    harness.restart()
    harness.settle()
    assert not harness.names(kinds.JOBS)


def test_a_suspended_cron_starts_nothing_whatever_else_makes_us_look_at_it() -> None:
    harness = test_crons.started(suspend=True)
    harness.wait(test_crons.HOUR)
    harness.restart()
    harness.settle()
    assert not harness.names(kinds.JOBS)


def test_a_flow_whose_patch_names_another_scheduler_belongs_to_another_system() -> None:
    harness = test_flows.world_with("a")
    patch = flow.FlowPatch(job_spec=msgspec.Raw(b'{"schedulerName": "kueue"}'))
    harness.submit(make_flow("f", [flow.Flow(name="a", patch=patch)]))
    harness.settle()
    assert not harness.names(kinds.JOBS)


def test_a_finished_job_stays_while_the_flow_that_made_it_cannot_be_read() -> None:
    """It may know nothing of its end yet, and would make it again."""
    harness = test_flows.started({"a": []}, ttl=0)
    harness.restart()
    unreadable = undecodable_record(topics.JOB_FLOWS, test_flows.F)
    harness.dirty |= dict.fromkeys(harness.cache.apply(unreadable).items)
    test_flows.end(harness, "f-a")
    assert harness.names(kinds.JOBS) == ["f-a"]
