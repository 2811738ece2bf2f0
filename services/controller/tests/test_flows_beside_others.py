"""JobFlows while another batch system is active: a flow is ours if its templates name us."""

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import competitors_observed
from stromboli.shared.api import kinds
from stromboli.shared.messages import cluster
from stromboli.testkit.builders import make_flow, make_job, make_template

RIVAL = cluster.Competitor(lease="v/l", holder="h", since="s", scheduler_name="theirs")


def beside_another(first: str, second: str) -> CoreHarness:
    """A flow of jobs ``a`` and then ``b``, whose templates name these schedulers."""
    harness = CoreHarness()
    harness.show(competitors_observed(harness, RIVAL))
    harness.see()
    harness.submit(make_template("a", make_job(scheduler=first, ttl_seconds_after_finished=60)))
    harness.submit(make_template("b", make_job(scheduler=second)))
    harness.submit(make_flow("f", {"a": [], "b": ["a"]}))
    harness.settle()
    return harness


def complete(harness: CoreHarness, name: str) -> None:
    harness.enqueue(harness.group_key(f"default/{name}"))
    harness.settle()
    harness.run(f"{name}-worker-0", phase="Succeeded")
    harness.settle()


@pytest.mark.parametrize("is_deleted_after_its_job", [False, True])
def test_a_flow_goes_on_when_a_template_of_a_started_job_is_deleted(
    *, is_deleted_after_its_job: bool
) -> None:
    harness = beside_another("volcano", "volcano")
    if is_deleted_after_its_job:
        complete(harness, "f-a")
        harness.wait(61)
        harness.settle()
        assert harness.names(kinds.JOBS) == ["f-b"]
    harness.delete(kinds.JOB_TEMPLATES, "default/a")
    harness.settle()
    if not is_deleted_after_its_job:
        complete(harness, "f-a")
    assert "f-b" in harness.names(kinds.JOBS)
    complete(harness, "f-b")
    assert harness.get(kinds.JOB_FLOWS, "default/f").status.state.phase == "Succeed"


@pytest.mark.parametrize("second", ["theirs", ""])
def test_a_flow_of_the_other_system_stays_so_when_a_template_is_deleted(second: str) -> None:
    harness = beside_another("volcano", second)
    harness.delete(kinds.JOB_TEMPLATES, "default/a")
    harness.settle()
    harness.delete(kinds.JOB_TEMPLATES, "default/b")
    harness.settle()
    assert not harness.names(kinds.JOBS)
    assert not harness.get(kinds.JOB_FLOWS, "default/f").status.state.phase


def test_a_flow_says_that_a_template_of_a_job_to_start_was_deleted_and_goes_on_with_it() -> None:
    """Beside another system a template without schedulerName is the other's; a flow whose jobs are
    ours remains ours without the template. Else its progress is not recorded, and its completed
    jobs run again once they are deleted."""
    harness = beside_another("volcano", "volcano")
    harness.delete(kinds.JOB_TEMPLATES, "default/b")
    harness.settle()
    complete(harness, "f-a")
    harness.wait(61)
    harness.settle()
    assert harness.names(kinds.JOBS) == []
    assert [it.message for it in harness.events.values() if it.reason == "SyncJobFlow"] == [
        "job f-b is not created: JobTemplate default/b does not exist"
    ]
    assert harness.get(kinds.JOB_FLOWS, "default/f").status.completed_jobs == ("f-a",)
    harness.submit(make_template("b", make_job(scheduler="volcano")))
    harness.settle()
    assert harness.names(kinds.JOBS) == ["f-b"]


@pytest.mark.parametrize("is_other_active", [True, False])
def test_a_flow_says_that_a_template_is_missing_before_its_first_job(
    *, is_other_active: bool
) -> None:
    harness = beside_another("volcano", "volcano")
    harness.submit(make_flow("g", {"a": [], "c": []}))
    harness.settle()
    assert harness.names(kinds.JOBS) == ["f-a"]
    (event,) = (it for it in harness.events.values() if it.name == "g")
    assert (event.reason, event.message) == (
        "SyncJobFlow",
        "no job is started: JobTemplate default/c does not exist, so the flow may belong to "
        "another active batch system: create the template",
    )
    if is_other_active:
        harness.submit(make_template("c", make_job(scheduler="volcano")))
    else:
        harness.show(competitors_observed(harness))
    harness.settle()
    assert [it for it in harness.names(kinds.JOBS) if it != "f-a"] == (
        ["g-a", "g-c"] if is_other_active else ["g-a"]
    )
