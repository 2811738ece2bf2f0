"""Dry runs that a repeated submission does not need, and what happens if a remembered answer is
wrong."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.controller.tests.test_planned_pod_creation import RecordingCluster
from services.controller.tests.test_planned_pods import NODE, NOW, cache, job, task
from stromboli.controller.core import commands
from stromboli.controller.core.pods import planned_pods
from stromboli.controller.core.store import (
    admission_configuration,
    controller_cache,
    dry_run_answers,
)
from stromboli.controller.execution.pod_planner import PodPlanner
from stromboli.controller.execution.request_limiter import RequestLimiter
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared import keys
from stromboli.shared.api import batch, core
from stromboli.shared.messages import plans

SPEC = core.PodSpec(node_name="")


def named(name: str, **more: Any) -> batch.Job:
    made = job(**more)
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, name=name, uid=f"uid-{name}")
    )


def likeness(made: batch.Job) -> str:
    requested = planned_pods.request(cache(NODE, made), made)
    assert requested is not None
    (run,) = requested.dry_runs
    return run.likeness


def labelled(name: str) -> batch.TaskSpec:
    task_spec = task()
    metadata = msgspec.structs.replace(task_spec.template.metadata, labels={"team": name})
    template = msgspec.structs.replace(task_spec.template, metadata=metadata)
    return msgspec.structs.replace(task_spec, template=template)


def test_pods_of_two_jobs_that_differ_only_in_names_have_one_likeness() -> None:
    assert likeness(named("a")) == likeness(named("b")) != ""


@pytest.mark.parametrize(
    "other",
    [task(activeDeadlineSeconds=5), labelled("b")],
    ids=["another spec", "other labels of the template"],
)
def test_pods_whose_answer_may_differ_have_different_likenesses(other: batch.TaskSpec) -> None:
    assert likeness(job()) != likeness(job(other))


def test_no_answer_is_remembered_while_a_webhook_or_policy_may_change_pods() -> None:
    """Even one that changes equal pods equally may depend on the name of the job."""
    made = job()
    known = cache(NODE, made)
    known.plans.admission = admission_configuration.AdmissionConfiguration(changes_pods=True)
    requested = planned_pods.request(known, made)
    assert requested is not None
    assert [run.likeness for run in requested.dry_runs] == [""]


def test_an_answer_is_not_used_after_its_time() -> None:
    """An object on which it depends may have changed, such as a limit range."""
    answers = dry_run_answers.DryRunAnswers()
    answers.note("like", SPEC, "digest", NOW)
    assert answers.of("like", NOW + dry_run_answers.REMEMBERED - timedelta(seconds=1)) == SPEC
    assert answers.of("like", NOW + dry_run_answers.REMEMBERED) is None


def test_an_answer_of_the_future_is_not_used() -> None:
    """The clock was set back."""
    answers = dry_run_answers.DryRunAnswers()
    answers.note("like", SPEC, "digest", NOW)
    assert answers.of("like", NOW - timedelta(seconds=1)) is None


def test_a_difference_after_a_remembered_answer_drops_the_answer_and_the_next_one_the_spec() -> (
    None
):
    known = cache(NODE).plans
    known.answers.note("like", SPEC, "digest", NOW)
    known.answers.of("like", NOW)
    known.differs("digest")
    assert known.answers.of("like", NOW) is None
    assert not known.is_rejected("digest")
    known.answers.note("like", SPEC, "digest", NOW)
    known.answers.of("like", NOW)
    known.differs("digest")
    assert known.is_rejected("digest")


def test_a_difference_after_a_dry_run_disables_plans_of_the_spec() -> None:
    known = cache(NODE).plans
    known.answers.note("like", SPEC, "digest", NOW)
    known.differs("digest")
    assert known.is_rejected("digest")


async def test_a_repeated_template_is_planned_without_a_dry_run(tmp_path: Path) -> None:
    first, second = named("a"), named("b")
    known = cache(NODE, first, second)
    sent: list[str] = []
    async with (
        EmbeddedBus(tmp_path / "log.db") as bus,
        RecordingCluster(tmp_path / "cluster.db", sent) as cluster,
    ):
        writer = await bus.open_writer("controller", "test")
        planner = PodPlanner(known, cluster, writer, RequestLimiter(8), lambda: NOW)
        found = [await planned(planner, known, made) for made in (first, second)]
    assert sent == ["create the Pod"]
    templates = [plan.tasks[0].template for plan in found]
    assert templates[0].spec == templates[1].spec
    names = [it.metadata.annotation(keys.JOB_NAME) for it in templates]
    assert names == ["a", "b"]
    assert found[0].digest != found[1].digest


async def planned(
    planner: PodPlanner, known: controller_cache.ControllerCache, made: batch.Job
) -> plans.PodsPlanned:
    requested = planned_pods.request(known, made)
    assert isinstance(requested, commands.PlanPods)
    await planner.plan(requested, "", "")
    plan = known.plans.of(requested.pod_group)
    assert plan is not None
    return plan
