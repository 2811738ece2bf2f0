"""The PodGroup of a job announces the plan of its pods, which is requested at the same time."""

import msgspec
import pytest

from services.controller.tests.test_planned_pods import NODE, cache, job, planned
from stromboli.controller.core import commands
from stromboli.controller.core.jobs import job_objects
from stromboli.controller.core.pods import planned_pods, pods
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.shared.api import scheduling as scheduling_api
from stromboli.testkit import builders


def announces_plan(create: commands.Command) -> bool:
    assert isinstance(create, commands.Create)
    return kinds.POD_GROUPS.decode(create.body).metadata.annotation(keys.PLAN_FOLLOWS) == "true"


def test_the_pod_group_announces_the_plan_that_is_requested_with_it() -> None:
    made = job()
    known = cache(NODE, made)
    requested, create = job_objects.group_commands(known, made)
    assert isinstance(requested, commands.PlanPods)
    (run,) = requested.dry_runs
    assert (run.task, run.prefix, run.replicas) == ("w", "j1-w", 2)
    assert kinds.PODS.decode(run.body).spec.node_name == "n1"
    assert announces_plan(create)
    planned(known, made)
    (create,) = job_objects.group_commands(known, made)
    assert not announces_plan(create), "a session has both"


def group_of(made: batch.Job, phase: str, *, announced: bool = True) -> scheduling_api.PodGroup:
    marks = {keys.PLAN_FOLLOWS: "true"} if announced else {}
    name = pods.group_name(made)
    return builders.make_pod_group(name, 2, owner=made, phase=phase, annotations=marks)


@pytest.mark.parametrize(
    ("phase", "announced", "is_requested"),
    [("Pending", True, True), ("Inqueue", True, False), ("Pending", False, False)],
    ids=["waits", "admitted without it", "not announced"],
)
def test_a_plan_that_was_announced_and_failed_is_requested_again(
    phase: str, *, announced: bool, is_requested: bool
) -> None:
    """As after a crash, or while the broker is unavailable. No session waits for it later."""
    made = job()
    known = cache(NODE, made, group_of(made, phase, announced=announced))
    found = job_objects.group_commands(known, made)
    assert any(isinstance(it, commands.PlanPods) for it in found) == is_requested


def test_the_annotation_of_a_job_announces_no_plan() -> None:
    """A PodGroup has the annotations of its job, which users write."""
    made = job()
    metadata = msgspec.structs.replace(made.metadata, annotations={keys.PLAN_FOLLOWS: "true"})
    (create,) = job_objects.group_commands(
        cache(made), msgspec.structs.replace(made, metadata=metadata)
    )
    assert not announces_plan(create)


def test_a_job_that_must_not_be_planned_expects_no_planned_pods() -> None:
    """Sessions read a plan without tasks, so that they do not wait for another."""
    made = job()
    known = cache(NODE, made)
    requested = planned_pods.request(known, made)
    assert requested is not None
    known.plans.put(requested.pod_group, planned_pods.no_plan(requested))
    assert not job_objects.expects_planned_pods(known, made)
    (create,) = job_objects.group_commands(known, made)
    assert not announces_plan(create)
