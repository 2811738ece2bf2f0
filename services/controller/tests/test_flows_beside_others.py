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
