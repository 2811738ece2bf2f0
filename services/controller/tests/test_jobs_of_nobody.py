"""A job that names no scheduler: it passed admission because another system acted."""

import pytest

from services.controller.tests.scenes import J, rivals_seen
from services.controller.tests.world import World
from stromboli.controller.core import reconcilers
from stromboli.controller.core.store import cache, event_history
from stromboli.shared.api import batch
from stromboli.shared.messages import cluster
from stromboli.testkit.builders import NOON, make_job, make_record, observed


def test_a_job_that_names_nobody_is_left_to_another_system_and_then_told_that_nobody_runs_it() -> (
    None
):
    """It stays as it is: how far the other got with it is not known."""
    world = World()
    rival = cluster.Rival(lease="v/l", holder="h", since="s", scheduler_name="theirs")
    world.show(rivals_seen(world, rival))
    world.see()
    world.submit(make_job(scheduler=""))
    world.settle()
    assert world.events == {}
    world.show(rivals_seen(world))
    world.see()
    world.settle()
    (said,) = world.events.values()
    assert (said.type, said.reason) == ("Warning", "NoScheduler")
    assert "submit it again; without a name it gets 'volcano'" in said.message
    world.restart()
    world.settle()
    assert (len(world.events), world.told, list(world.requests())) == (1, [], [])


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated"])
def test_a_job_of_nobody_that_has_ended_is_told_nothing(phase: str) -> None:
    status = batch.JobStatus(state=batch.JobState(phase=phase))
    picture = cache.Cache(["volcano"], event_history.Published())
    picture.apply(make_record(observed(make_job(scheduler="", status=status))))
    assert reconcilers.plan(picture, cache.ReconcileKey("job", J), NOON) == ()
