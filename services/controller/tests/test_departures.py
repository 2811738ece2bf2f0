"""Pods that are gone before anybody saw that they are being deleted."""

from collections.abc import Sequence

import pytest

from services.controller.tests.scenes import J, running
from stromboli.controller.core.store.cache import ReconcileKey
from stromboli.shared import topics
from stromboli.shared.api import batch as api
from stromboli.shared.api import kinds
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
    assert gone(world.told) == ["AbortJob"]
    assert world.phase() == "Aborted"


@pytest.mark.parametrize("action", ["RestartJob", "RestartTask"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["", "killed"])
def test_a_pod_that_a_restart_ended_went_for_that_though_nobody_saw_it_going(
    action: str, is_killed: bool
) -> None:
    """The job is no longer restarting once all have gone; what ended them is told before."""
    policies = [api.LifecyclePolicy(event="PodFailed", action=action)]
    world = running(make_job(tasks=[make_task(replicas=2)], policies=policies))
    world.change_pod(f"{J}-worker-0", "Failed", exit_code=1)
    world.see()
    world.step(ReconcileKey("job", J))
    for name in world.pod_names():
        world.reap(f"default/{name}")
    if is_killed:
        world.restart()
    world.settle()
    assert (world.phase(), gone(world.told)) == ("Pending", [action])


def test_a_pod_that_went_by_itself_while_others_restart_is_still_an_eviction() -> None:
    policies = [
        api.LifecyclePolicy(event="PodFailed", action="RestartPod"),
        api.LifecyclePolicy(event="PodEvicted", action="AbortJob"),
    ]
    world = running(make_job(tasks=[make_task(replicas=2)], policies=policies))
    world.change_pod(f"{J}-worker-0", "Failed", exit_code=1)
    world.see()
    world.step(ReconcileKey("job", J))
    for name in world.pod_names():
        world.reap(f"default/{name}")
    world.settle()
    assert (world.phase(), gone(world.told)) == ("Aborted", ["AbortJob"])


def test_late_news_of_a_pod_that_was_found_gone_does_not_hide_the_one_made_in_its_place() -> None:
    """Somebody ended it before we did, which the monitor tells after our new pod is there."""
    policies = [
        api.LifecyclePolicy(event="PodFailed", action="RestartPod"),
        api.LifecyclePolicy(event="PodEvicted", action="AbortJob"),
    ]
    world = running(make_job(tasks=[make_task(replicas=1)], policies=policies))
    (old,) = world.pods()
    world.change_pod(old.metadata.key, "Failed", exit_code=1)
    world.see()
    world.step(ReconcileKey("job", J))
    world.delete(kinds.PODS, old.metadata.key)
    world.reap(old.metadata.key)
    while not world.pods():
        world.step(ReconcileKey("job", J))
    world.step(ReconcileKey("job", J))  # the new one is told
    for _ in range(2):
        world.see_one(topics.PODS.name)
        world.step(ReconcileKey("job", J))
    world.settle()
    assert (world.phase(), gone(world.told)) == ("Pending", [])


def gone(told: Sequence[tuple[str, object]]) -> list[str]:
    messages = [it for _, it in told if isinstance(it, batch.TaskChanged)]
    return [it.reason for it in messages if it.after == "Gone"]
