"""Pods that are gone before anybody saw that they are being deleted."""

from collections.abc import Sequence

import pytest

from services.controller.tests.scenes import J, running
from stromboli.shared.api import batch as api
from stromboli.shared.messages import batch
from stromboli.testkit.builders import make_job, make_task

RULES = [
    api.LifecyclePolicy(event="Preempted", action="RestartTask"),
    api.LifecyclePolicy(event="NodeLost", action="RestartTask"),
    api.LifecyclePolicy(event="PodEvicted", action="AbortJob"),
]


@pytest.mark.parametrize(
    ("disruption", "cause"),
    [("PreemptionByScheduler", "Preempted"), ("DeletionByTaintManager", "NodeLost")],
)
def test_a_pod_that_vanishes_went_for_what_it_said_last(disruption: str, cause: str) -> None:
    """As where the answer to our deletion is lost, and the pod is not there when we ask again."""
    world = running(make_job(tasks=[make_task(replicas=1)], policies=RULES))
    (pod,) = world.pods()
    condition = {"type": "DisruptionTarget", "status": "True", "reason": disruption}
    world.change_pod(pod.metadata.key, conditions=[condition])
    world.settle()
    world.reap(pod.metadata.key)
    world.settle()
    assert gone(world.told) == [cause]
    assert (world.job().status.retry_count, world.phase() == "Aborted") == (1, False)


def test_a_pod_that_vanishes_without_a_word_was_evicted_by_somebody() -> None:
    world = running(make_job(tasks=[make_task(replicas=1)], policies=RULES))
    world.reap(f"{J}-worker-0")
    world.settle()
    assert gone(world.told) == ["Stopped"]
    assert world.phase() == "Aborted"


def gone(told: Sequence[tuple[str, object]]) -> list[str]:
    messages = [it for _, it in told if isinstance(it, batch.TaskChanged)]
    return [it.reason for it in messages if it.after == "Gone"]
