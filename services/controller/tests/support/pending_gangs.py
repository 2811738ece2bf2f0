"""Pending gangs, and the scheduler's explanations."""

from typing import Any

from services.controller.tests.support.core_harness import CoreHarness
from stromboli.shared import envelope, topics
from stromboli.shared.api import scheduling
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit.builders import make_explanation, make_job, make_task

MESSAGE = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable"


def explained(
    group: scheduling.PodGroup, text: str = MESSAGE, **said: Any
) -> messages.PodGroupExplained:
    """Why a gang of two waits."""
    usual = {"tier": "resources", "phase": group.status.phase, "min_member": group.spec.min_member}
    key, uid = group.metadata.key, group.metadata.uid
    return make_explanation(key, uid, 2, message=text, **{**usual, **said})


def explain(harness: CoreHarness, group: scheduling.PodGroup, text: str = MESSAGE) -> None:
    """The scheduler explains why the gang is pending, and the controller reads it."""
    show(harness, group, explained(group, text))


def show(
    harness: CoreHarness,
    group: scheduling.PodGroup,
    message: messages.PodGroupExplained | None,
    *,
    is_settled: bool = True,
) -> None:
    """The scheduler's explanation of a gang; None removes it."""
    harness.show(
        envelope.Draft(
            topic=topics.EXPLANATIONS, key=group.metadata.key, message=message, time=harness.now
        )
    )
    if is_settled:
        harness.settle()


def waiting() -> CoreHarness:
    """A gang of two that was enqueued and finds no place."""
    harness = CoreHarness()
    harness.submit(make_job(tasks=[make_task(replicas=2)]))
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    explain(harness, harness.group())
    return harness


def holds(group: scheduling.PodGroup) -> dict[str, tuple[str, str, str]]:
    """Type of a condition -> its status, reason and message."""
    return {it.type: (it.status, it.reason, it.message) for it in group.status.conditions}


def reported_on_pods(harness: CoreHarness) -> None:
    """The gang has waited long enough for its pods to have the reason."""
    harness.wait(1)
    harness.settle()
