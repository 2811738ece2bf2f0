"""The scheduling gate with which pods wait until their queue admits their gang."""

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from stromboli.shared import keys
from stromboli.testkit.builders import make_pod, make_pod_group

OTHER = "example.com/other"
WANTED = {keys.QUEUE_GATE: "true"}


def gates_left(phase: str, gates: list[str], annotations: dict[str, str] = WANTED) -> list[str]:
    """The gates of a pod after its PodGroup has reached a phase."""
    harness = CoreHarness()
    harness.submit(make_pod_group("g1", 1, phase=phase))
    harness.submit(make_pod("p1", "g1", gates=gates, annotations=annotations))
    harness.settle()
    (pod,) = harness.pods()
    return [gate.name for gate in pod.spec.scheduling_gates]


def test_the_gate_is_removed_once_the_gang_is_admitted() -> None:
    assert gates_left("Pending", [keys.QUEUE_GATE]) == [keys.QUEUE_GATE]
    assert gates_left("Inqueue", [keys.QUEUE_GATE]) == []


def test_a_pod_that_joins_an_admitted_gang_loses_its_gate() -> None:
    assert gates_left("Running", [keys.QUEUE_GATE]) == []


@pytest.mark.parametrize("first", [0, 1])
def test_other_gates_are_kept_and_removed_before_the_one_of_the_queue(first: int) -> None:
    """A pod with another gate needs no room in its queue yet."""
    both = [keys.QUEUE_GATE, OTHER][:: 1 if first else -1]
    assert gates_left("Inqueue", both) == both
    assert gates_left("Inqueue", [OTHER]) == [OTHER]


def test_a_gate_that_its_pod_does_not_request_by_annotation_is_of_another_client() -> None:
    assert gates_left("Inqueue", [keys.QUEUE_GATE], {}) == [keys.QUEUE_GATE]
