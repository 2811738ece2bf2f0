"""What objects state in annotations and labels is part of what decisions depend on: a change of it
starts a session, although nothing else changes."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from services.scheduler.tests import test_deviceshare
from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.harness import SchedulerHarness
from stromboli.scheduler.core import policy
from stromboli.scheduler.core.config import configuration
from stromboli.shared import keys
from stromboli.shared.api import core, meta
from stromboli.testkit import builders

QUEUE = builders.make_queue()
NODE = builders.make_node("n1", cpu="1")
LOW, HIGH = builders.make_priority_class("low", 1), builders.make_priority_class("high", 9)
ORDER = [sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")]


def harness_of(configured: configuration.Configuration) -> tuple[SchedulerHarness, policy.Policy]:
    harness = SchedulerHarness()
    by = policy.Policy(configured=configured)
    harness.cache.sessions_may_evict = bool(
        policy.EVICTING_ACTIONS.intersection(configured.actions)
    )
    return harness, by


def changed(
    obj: meta.Object,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Any:
    """A later version with these annotations and labels added."""
    metadata = msgspec.structs.replace(
        obj.metadata,
        resource_version=str(int(obj.metadata.resource_version) + 1),
        annotations={**(obj.metadata.annotations or {}), **(annotations or {})},
        labels={**(obj.metadata.labels or {}), **(labels or {})},
    )
    return msgspec.structs.replace(obj, metadata=metadata)


def test_a_pod_whose_devices_are_set_up_lets_the_next_one_start() -> None:
    """Its device plugin says so in an annotation; the node's lock would otherwise last for five
    minutes."""
    harness, by = harness_of(sessions.configured(test_deviceshare.tier(NodeLockEnable=True)))
    wants = test_deviceshare.wants(memory=1)
    group, *pods = sessions.gang("g", "default", 2, containers=[wants])
    harness.see(QUEUE, test_deviceshare.vgpu_node("n1", "A,8000"), group, *pods)
    (first,) = [bind for each in harness.session(by=by).decisions for bind in each.binds]
    harness.answer("executed")
    pod = next(pod for pod in pods if pod.metadata.name == first.pod)
    assert isinstance(pod, core.Pod)
    spec = msgspec.structs.replace(pod.spec, node_name="n1")
    bound = changed(msgspec.structs.replace(pod, spec=spec), annotations=first.annotations)
    harness.see(bound)
    assert not harness.session(by=by).decisions
    assert harness.cache.session_cause == ""
    harness.see(changed(bound, {"volcano.sh/bind-phase": "success"}))
    assert harness.cache.session_cause
    assert [bind.pod for each in harness.session(by=by).decisions for bind in each.binds]


@pytest.mark.parametrize("on_group", [False, True])
def test_a_job_that_becomes_preemptable_is_evicted_for_the_gang_that_waits(on_group: bool) -> None:
    action = "gangpreempt" if on_group else "preempt"
    harness, by = harness_of(sessions.configured(ORDER, run=f"allocate, {action}"))
    kept = {keys.PREEMPTABLE: "false"}
    victim = builders.make_pod_group(
        "victim", 0, phase="Running", priority_class="low", annotations=kept if on_group else None
    )
    pod = builders.make_pod(
        "victim-0", "victim", node="n1", phase="Running", annotations=None if on_group else kept
    )
    group = builders.make_pod_group("g", 1, priority_class="high")
    harness.see(QUEUE, NODE, LOW, HIGH, victim, pod, group, builders.make_pod("g-0", "g"))
    assert not harness.session(by=by).decisions
    assert harness.cache.session_cause == ""
    harness.see(changed(victim if on_group else pod, {keys.PREEMPTABLE: "true"}))
    assert harness.cache.session_cause
    assert [each.evictions for each in harness.session(by=by).decisions]


def test_a_label_that_a_waiting_pod_asks_for_lets_it_start() -> None:
    """The pod that gets it runs already, with or without a gang."""
    for owner in ("", "old"):
        harness, by = harness_of(sessions.configured(ORDER))
        selector = core.LabelSelector(match_labels={"cache": "warm"})
        near = core.PodAffinityTerm(label_selector=selector, topology_key="kubernetes.io/hostname")
        affinity = core.Affinity(
            pod_affinity=core.PodAffinity(
                required_during_scheduling_ignored_during_execution=(near,)
            )
        )
        old = builders.make_pod("old-0", owner, cpu="0", node="n1", phase="Running")
        node = builders.make_node("n1", labels={"kubernetes.io/hostname": "n1"})
        harness.see(QUEUE, node, builders.make_pod_group("old", 0, phase="Running"), old)
        harness.see(
            builders.make_pod_group("g", 1), builders.make_pod("g-0", "g", affinity=affinity)
        )
        assert not harness.session(by=by).decisions
        assert harness.cache.session_cause == ""
        harness.see(changed(old, labels={"cache": "warm"}))
        assert harness.cache.session_cause
        assert [each.binds for each in harness.session(by=by).decisions]


def test_a_corrected_annotation_of_a_waiting_pod_lets_it_start() -> None:
    harness, by = harness_of(sessions.configured(test_deviceshare.tier()))
    wants = test_deviceshare.wants(memory=1)
    group, pod = sessions.gang(
        "g", "default", 1, containers=[wants], annotations={"nvidia.com/use-gputype": "H100"}
    )
    harness.see(QUEUE, test_deviceshare.vgpu_node("n1", "A,8000"), group, pod)
    assert not harness.session(by=by).decisions
    harness.see(changed(pod, {"nvidia.com/use-gputype": "A100"}))
    assert harness.cache.session_cause
    assert [each.binds for each in harness.session(by=by).decisions]


def test_a_gang_that_no_longer_names_a_reservation_starts() -> None:
    harness, by = harness_of(sessions.configured(ORDER))
    group = builders.make_pod_group("g", 1, annotations={keys.RESERVATION: "course"})
    harness.see(QUEUE, NODE, group, builders.make_pod("g-0", "g"))
    assert not harness.session(by=by).decisions
    harness.see(changed(group, {keys.RESERVATION: ""}))
    assert harness.cache.session_cause
    assert [each.binds for each in harness.session(by=by).decisions]


def test_an_annotation_that_no_decision_reads_starts_no_session() -> None:
    """Network plugins write some on each pod that starts."""
    harness, by = harness_of(sessions.configured(ORDER))
    old = builders.make_pod("old", "", node="n1", phase="Running")
    group, waiting = builders.make_pod_group("g", 1), builders.make_pod("g-0", "g")
    harness.see(QUEUE, NODE, old, group, waiting)
    assert not harness.session(by=by).decisions
    for each in (old, waiting, group):
        harness.see(changed(each, {"cni.example.com/podIP": "10.0.0.1"}))
        assert harness.cache.session_cause == ""
