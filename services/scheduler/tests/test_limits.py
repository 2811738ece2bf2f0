"""Values at the limits of their types decide as any other, or stop their own object."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from services.scheduler.tests.support import default_sessions
from services.scheduler.tests.support.harness import SchedulerHarness
from stromboli.scheduler.core.config import durations
from stromboli.scheduler.core.model import task_classes
from stromboli.shared import cluster_clock
from stromboli.shared.api import meta, topology
from stromboli.testkit import builders

QUEUE, NODE = builders.make_queue(), builders.make_node("n1", cpu="4")
FIRST = datetime(1, 1, 1, tzinfo=UTC)
EXACT = topology.MemberSelector(exact_match=topology.ExactMatch(name="n1"))
LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def placed(*objects: meta.Object) -> set[str]:
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE, *objects, *default_sessions.gang("fine", 1))
    decided = harness.session()
    assert harness.cache.quarantine.complaints() == []
    assert decided.failures == {}
    return {bind.pod for each in decided.decisions for bind in each.binds}


@pytest.mark.parametrize("tier", [2**63 - 1, -(2**63), 2**62, 0])
def test_a_hyper_node_of_any_tier_stops_no_session(tier: int) -> None:
    """The whole network is a tier above the highest."""
    members = (topology.Member(type="Node", selector=EXACT),)
    spec = topology.HyperNodeSpec(tier=tier, members=members)
    hyper_node = topology.HyperNode(metadata=builders.make_meta("hypernode", "h"), spec=spec)
    assert placed(hyper_node) == {"fine-0"}


@pytest.mark.parametrize("created", [FIRST, LAST])
def test_an_object_of_any_age_stops_no_session(created: datetime) -> None:
    group = builders.make_pod_group("old", 2, phase="Inqueue", created=created)
    assert placed(group) == {"fine-0"}


def test_a_quantity_of_more_than_64_bits_is_named() -> None:
    pod = builders.make_pod(cpu=10**30)
    with pytest.raises(ValueError, match="requests cpu: "):
        task_classes.TaskClassIndex().of(pod)
    assert placed(pod) == {"fine-0"}


def test_a_time_after_the_last_is_the_last() -> None:
    assert durations.after(LAST, timedelta(days=1)) == LAST
    assert durations.after(FIRST, -timedelta(days=1)) == FIRST
    assert durations.after(FIRST, timedelta(days=1)) == FIRST + timedelta(days=1)


@pytest.mark.parametrize("created", [FIRST, LAST])
def test_an_implausible_creation_time_does_not_move_the_clock(created: datetime) -> None:
    """Else one object would move all sessions by centuries."""
    clock = cluster_clock.ClusterClock()
    clock.observe(created, builders.NOON)
    assert clock.offset == timedelta()


@pytest.mark.parametrize("limit", [2**63 - 1, -(2**63), 0])
def test_a_pod_with_any_deadline_is_placed(limit: int) -> None:
    pod = builders.make_pod("alone-0", "alone", cpu="1")
    spec = msgspec.structs.replace(pod.spec, active_deadline_seconds=limit)
    group = builders.make_pod_group("alone", 1, phase="Inqueue")
    assert placed(group, msgspec.structs.replace(pod, spec=spec)) == {"alone-0", "fine-0"}
