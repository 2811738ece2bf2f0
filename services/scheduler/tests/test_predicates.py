"""Predicates and node order: which nodes are feasible for a task, and their scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support import default_sessions, sessions
from stromboli.scheduler.core import simulate
from stromboli.shared.api import core, meta, scheduling, storage
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

TAINT = core.Taint(key="gpu", value="yes", effect="NoSchedule")
REQUIREMENT = core.Taint(key="old", effect="PreferNoSchedule")


def with_spec(pod: core.Pod, **fields: Any) -> core.Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **fields))


def refused(*objects: meta.Object) -> dict[str, int]:
    """Why nodes refuse the only pod of the group ``g``."""
    decided = default_sessions.closed(builders.make_pod_group("g", 1), *objects)
    (error,) = decided.jobs["default/g"].fit_errors.values()
    return dict(error.refusals) or {error.message: 0}


def test_each_refusal_is_counted_by_its_reason() -> None:
    """Unschedulable, selector, taint and shortage, one node each."""
    fast = {"disk": "fast"}
    assert refused(
        builders.make_node("n1", labels=fast, unschedulable=True),
        builders.make_node("n2"),
        builders.make_node("n3", labels=fast, taints=(TAINT,)),
        builders.make_node("n4", labels=fast, cpu="500m"),
        builders.make_pod("g-0", "g", node_selector=fast),
    ) == {
        "node(s) were unschedulable": 1,
        "node(s) didn't match Pod's node affinity/selector": 1,
        "node(s) had untolerated taint(s)": 1,
        "Insufficient cpu": 1,
    }


def test_a_check_can_be_switched_off() -> None:
    """Arguments of predicates turn checks off one by one."""
    tier = [
        sessions.plugin("gang"),
        sessions.plugin("predicates", {"predicate.TaintTolerationEnable": False}),
    ]
    decided = default_sessions.closed(
        builders.make_node("n1", taints=(TAINT,)), *default_sessions.gang("g", 1), tier=tier
    )
    assert default_sessions.binds(decided) == {"g-0": "n1"}


def test_two_pods_of_one_host_port_do_not_share_a_node() -> None:
    """Also not when both are placed by the same session."""
    port = core.Container(ports=(core.ContainerPort(host_port=80),))
    decided = default_sessions.closed(
        builders.make_node("n1"),
        builders.make_pod_group("g", 1),
        builders.make_pod("g-0", "g", containers=[port], cpu=None),
        builders.make_pod("g-1", "g", containers=[port], cpu=None),
        run="backfill",
    )
    assert default_sessions.binds(decided) == {"g-0": "n1"}


def test_host_ports_of_sidecars_are_taken_as_those_of_containers() -> None:
    """A sidecar runs beside the containers; another init container has ended by then."""
    port = (core.ContainerPort(host_port=80),)
    sidecar = core.Container(name="s", restart_policy="Always", ports=port)
    ended = core.Container(name="i", ports=port)
    decided = default_sessions.closed(
        builders.make_node("n1"),
        builders.make_pod_group("g", 1),
        builders.make_pod("g-0", "g", init_containers=[sidecar], cpu=None, memory=None),
        builders.make_pod("g-1", "g", init_containers=[sidecar], cpu=None, memory=None),
        builders.make_pod("g-2", "g", containers=[core.Container(ports=port)]),
        builders.make_pod("g-3", "g", init_containers=[ended], cpu=None, memory=None),
        run="backfill",
    )
    assert default_sessions.binds(decided) == {"g-0": "n1", "g-3": "n1"}


def claim(name: str, **spec: Any) -> storage.PersistentVolumeClaim:
    return storage.PersistentVolumeClaim(
        metadata=builders.make_meta("claim", name, "default"),
        spec=storage.PersistentVolumeClaimSpec(**spec),
    )


def mounting(name: str) -> core.Pod:
    source = core.PersistentVolumeClaimSource(claim_name=name)
    return with_spec(
        builders.make_pod("g-0", "g"),
        volumes=(core.Volume(name="data", persistent_volume_claim=source),),
    )


def with_claims(
    claims: Sequence[storage.PersistentVolumeClaim],
    volumes: Sequence[storage.PersistentVolume] = (),
    classes: Sequence[storage.StorageClass] = (),
) -> Any:
    """A session over two nodes, of which ``b`` is in zone 2."""
    cluster = sessions.given(
        [
            builders.make_queue(),
            builders.make_node("a", labels={"zone": "1"}),
            builders.make_node("b", labels={"zone": "2"}),
            builders.make_pod_group("g", 1),
            mounting("data"),
        ]
    )
    return msgspec.structs.replace(
        cluster, claims=tuple(claims), volumes=tuple(volumes), storage_classes=tuple(classes)
    )


def decide(cluster: Any) -> Any:
    return simulate.run(sessions.configured(default_sessions.TIER), cluster)


def test_a_pod_goes_where_its_volume_can_be_reached() -> None:
    """A bound claim ties it to the nodes of its volume."""
    term = core.NodeSelectorTerm(
        match_expressions=(core.SelectorRequirement(key="zone", operator="In", values=("2",)),)
    )
    volume = storage.PersistentVolume(
        metadata=builders.make_meta("volume", "v"),
        spec=storage.PersistentVolumeSpec(
            node_affinity=storage.VolumeNodeAffinity(
                required=core.NodeSelector(node_selector_terms=(term,))
            )
        ),
    )
    decided = decide(with_claims([claim("data", volume_name="v")], [volume]))
    assert default_sessions.binds(decided) == {"g-0": "b"}
    assert decided.decisions.preparations == {}


def test_a_claim_that_waits_for_its_consumer_is_bound_before_the_pod() -> None:
    """The bind is prepared; a claim that is not there keeps the pod waiting."""
    late = storage.StorageClass(
        metadata=builders.make_meta("class", "late"),
        provisioner="example.com/disks",
        volume_binding_mode="WaitForFirstConsumer",
    )
    decided = decide(with_claims([claim("data", storage_class_name="late")], [], [late]))
    claimed_volume = messages.ClaimedVolume(claim="data", uid="claim-default-data")
    assert decided.decisions.preparations == {"default/g-0": [claimed_volume]}
    waiting = decide(with_claims([]))
    (error,) = waiting.jobs["default/g"].fit_errors.values()
    assert str(error) == 'persistentvolumeclaim "data" not found'


def preferring(weights: Mapping[str, int]) -> core.Affinity:
    terms = tuple(
        core.PreferredSchedulingTerm(
            weight=weight,
            preference=core.NodeSelectorTerm(
                match_expressions=(
                    core.SelectorRequirement(key="zone", operator="In", values=(zone,)),
                )
            ),
        )
        for zone, weight in weights.items()
    )
    return core.Affinity(
        node_affinity=core.NodeAffinity(preferred_during_scheduling_ignored_during_execution=terms)
    )


ONLY = {
    "leastrequested.weight": 0,
    "balancedresource.weight": 0,
    "nodeaffinity.weight": 0,
    "tainttoleration.weight": 0,
    "podaffinity.weight": 0,
    "podtopologyspread.weight": 0,
    "imagelocality.weight": 0,
}


@pytest.mark.parametrize(
    ("part", "best"),
    [
        ("leastrequested", "empty"),
        ("mostrequested", "busy"),
        ("nodeaffinity", "liked"),
        ("tainttoleration", "busy"),
        ("imagelocality", "stocked"),
    ],
)
def test_each_part_of_the_node_order_prefers_its_own(part: str, best: str) -> None:
    """With all other weights at 0; equals by name."""
    stocked = builders.make_node("stocked", taints=(REQUIREMENT,))
    image = core.ContainerImage(names=("example.com/big:1",), size_bytes=4 * 10**9)
    status = msgspec.structs.replace(stocked.status, images=(image,))
    pod = builders.make_pod(
        "g-0",
        "g",
        containers=[
            msgspec.structs.replace(builders.make_container("1", "1Gi"), image="example.com/big:1")
        ],
    )
    decided = default_sessions.closed(
        builders.make_node("busy", cpu="4", memory="16Gi"),
        builders.make_pod("other", node="busy", phase="Running", cpu="2", memory="8Gi"),
        builders.make_node("empty", cpu="64", memory="256Gi", taints=(REQUIREMENT,)),
        builders.make_node("liked", labels={"zone": "1"}, taints=(REQUIREMENT,)),
        msgspec.structs.replace(stocked, status=status),
        builders.make_pod_group("g", 1),
        with_spec(pod, affinity=preferring({"1": 10, "2": 1})),
        tier=[
            sessions.plugin("gang"),
            sessions.plugin("predicates"),
            sessions.plugin("nodeorder", ONLY | {f"{part}.weight": 1}),
        ],
    )
    assert default_sessions.binds(decided) == {"g-0": best}


def conditions(*objects: meta.Object) -> list[scheduling.PodGroupCondition]:
    return default_sessions.closed(*objects).jobs["default/g"].conditions


def test_a_gang_has_a_condition_that_states_whether_it_can_be_scheduled() -> None:
    """The condition has the known type, reason and numbers."""
    (waits,) = conditions(builders.make_node("n1", cpu="2"), *default_sessions.gang("g", 3))
    assert (waits.type, waits.status, waits.reason) == (
        "Unschedulable",
        "True",
        "NotEnoughResources",
    )
    assert waits.message.startswith("1/3 tasks in gang unschedulable: pod group is not ready, ")
    (goes,) = conditions(builders.make_node("n1", cpu="4"), *default_sessions.gang("g", 3))
    assert (goes.type, goes.reason) == ("Scheduled", "tasks in gang are ready to be scheduled")


def test_critical_pods_and_a_gangs_minimum_are_never_victims() -> None:
    """Gang, conformance and priority agree on who may go."""
    ssn = default_sessions.opened(
        builders.make_node("n1"),
        builders.make_priority_class("high", 10),
        builders.make_pod_group("old", 1),
        *(builders.make_pod(f"old-{at}", "old", node="n1", phase="Running") for at in range(3)),
        with_spec(
            builders.make_pod("vital", "old", node="n1", phase="Running"),
            priority_class_name="system-node-critical",
        ),
        builders.make_pod_group("new", 1, priority_class="high"),
        builders.make_pod("new-0", "new"),
        tier=[sessions.plugin(name) for name in ("gang", "conformance", "priority")],
    )
    (task,) = ssn.jobs["default/new"].tasks.values()
    candidates = list(ssn.jobs["default/old"].tasks.values())
    assert [each.name for each in ssn.preemptable(task, candidates)] == [
        "old-0",
        "old-1",
        "old-2",
    ]
    assert [each.name for each in ssn.reclaimable(task, candidates[:3])] == [
        "old-0",
        "old-1",
        "old-2",
    ]
