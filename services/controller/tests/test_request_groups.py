"""Which requests of a reconcile wait behind those of other jobs."""

from stromboli.controller.core import manifests
from stromboli.controller.execution import command_executor, event_recorder
from stromboli.shared.api import kinds
from stromboli.testkit import builders

POD = builders.make_pod("p")


def test_conditions_of_pods_wait_behind_other_requests() -> None:
    condition = {"type": "PodScheduled", "status": "False"}
    patch = manifests.with_condition(POD, condition)
    assert command_executor.request_group(patch, "job") == event_recorder.GROUP


def test_gates_and_annotations_of_pods_do_not_wait_behind_events() -> None:
    """Placement waits for them: a gang whose gates are removed behind a flood of Events starts
    late."""
    ungated = manifests.json_patch(
        kinds.PODS, POD, {"op": "remove", "path": "/spec/schedulingGates"}
    )
    annotated = manifests.annotated(kinds.PODS, POD, "scheduling.k8s.io/group-name", "g")
    for patch in (ungated, annotated):
        assert command_executor.request_group(patch, "job") == "job"
