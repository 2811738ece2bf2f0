"""What ends each wait of a gang starts a session, though nothing else changes.

``README.md`` lists the waits; those that end by time are in ``test_due_times``, those for claims in
``test_claim_cache``, and those after refusals in ``test_refusal_backoff`` and
``test_partial_gangs``.
"""

from collections.abc import Callable

import msgspec
import pytest

from services.scheduler.tests.support.harness import SchedulerHarness
from stromboli.shared import topics
from stromboli.shared.api import core, meta
from stromboli.testkit import builders

QUEUE = builders.make_queue()
NODE = builders.make_node("n1", cpu="4")
GANG = builders.make_pod_group("g", 1, phase="Inqueue")
POD = builders.make_pod("g-0", "g", cpu="3")
OTHER = builders.make_pod("other", "", cpu="3", node="n1", phase="Running")


def renewed(obj: meta.Object) -> meta.Object:
    metadata = msgspec.structs.replace(obj.metadata, resource_version="99")
    return msgspec.structs.replace(obj, metadata=metadata)


def unreadable_member(harness: SchedulerHarness) -> None:
    harness.see(QUEUE, NODE, GANG, POD, builders.make_pod("g-1", "g", cpu="1"))
    harness.apply(harness.log.garble(topics.PODS, "default/g-1"))


def unreadable_group(harness: SchedulerHarness) -> None:
    harness.see(QUEUE, NODE, POD)
    harness.apply(harness.log.garble(topics.POD_GROUPS, "default/g"))


def unreadable_queue(harness: SchedulerHarness) -> None:
    harness.see(QUEUE, NODE, GANG, POD)
    harness.apply(harness.log.garble(topics.QUEUES, "default"))


def unreadable_node(harness: SchedulerHarness) -> None:
    harness.see(QUEUE, NODE, GANG, POD)
    harness.apply(harness.log.garble(topics.NODES, "n1"))


def unreadable_pod_of_others(harness: SchedulerHarness) -> None:
    small = builders.make_pod("small", "", cpu="1", node="n1", phase="Running")
    harness.see(QUEUE, NODE, GANG, POD, small)
    harness.apply(harness.log.garble(topics.PODS, "default/small"))


def full_node(harness: SchedulerHarness) -> None:
    harness.see(QUEUE, NODE, GANG, POD, OTHER)


def node_being_released(harness: SchedulerHarness) -> None:
    going = msgspec.structs.replace(OTHER.metadata, deletion_timestamp=builders.NOON)
    harness.see(QUEUE, NODE, GANG, POD, msgspec.structs.replace(OTHER, metadata=going))


def finished(pod: core.Pod) -> core.Pod:
    status = msgspec.structs.replace(pod.status, phase="Succeeded")
    return msgspec.structs.replace(pod, status=status)


@pytest.mark.parametrize(
    ("waits", "obj", "lost"),
    [
        (unreadable_member, builders.make_pod("g-1", "g", cpu="1"), None),
        (unreadable_member, None, builders.make_pod("g-1", "g", cpu="1")),
        (unreadable_group, GANG, None),
        (unreadable_queue, QUEUE, None),
        (unreadable_node, NODE, None),
        (unreadable_pod_of_others, builders.make_pod("small", "", cpu="1", node="n1"), None),
        (unreadable_pod_of_others, None, builders.make_pod("small", "", node="n1")),
        (full_node, None, OTHER),
        (full_node, finished(OTHER), None),
        (full_node, builders.make_node("n2", cpu="4"), None),
        (node_being_released, None, OTHER),
    ],
)
def test_the_end_of_a_wait_starts_a_session_that_starts_the_gang(
    waits: Callable[[SchedulerHarness], None],
    obj: meta.Object | None,
    lost: meta.Object | None,
) -> None:
    harness = SchedulerHarness()
    waits(harness)
    assert not harness.session().decisions
    assert harness.cache.session_cause == ""
    if obj is not None:
        harness.see(renewed(obj))
    if lost is not None:
        harness.lose(lost)
    assert harness.cache.session_cause
    decided = harness.session().decisions
    assert [bind.pod for each in decided for bind in each.binds][:1] == ["g-0"]
