"""A job that names no scheduler: it passed admission because another system acted."""

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import J, competitors_observed
from stromboli.controller.core import reconcilers
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.shared.api import batch
from stromboli.shared.messages import cluster
from stromboli.testkit.builders import NOON, make_job, make_record, snapshot_of


def test_a_job_without_a_scheduler_name_gets_a_warning_when_the_other_system_is_gone() -> None:
    """It stays as it is: how far the other got with it is not known."""
    harness = CoreHarness()
    rival = cluster.Competitor(lease="v/l", holder="h", since="s", scheduler_name="theirs")
    harness.show(competitors_observed(harness, rival))
    harness.see()
    harness.submit(make_job(scheduler=""))
    harness.settle()
    assert harness.events == {}
    harness.show(competitors_observed(harness))
    harness.see()
    harness.settle()
    (event,) = harness.events.values()
    assert (event.type, event.reason) == ("Warning", "NoScheduler")
    assert "submit it again, with schedulerName volcano or without one" in event.message
    harness.restart()
    harness.settle()
    assert (len(harness.events), harness.sent, list(harness.requests())) == (1, [], [])


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated"])
def test_a_finished_job_without_a_scheduler_gets_no_warning(phase: str) -> None:
    status = batch.JobStatus(state=batch.JobState(phase=phase))
    cache = controller_cache.ControllerCache(["volcano"], event_history.EventHistory())
    cache.apply(make_record(snapshot_of(make_job(scheduler="", status=status))))
    assert reconcilers.plan(cache, controller_cache.ReconcileKey("job", J), NOON) == ()
