"""The plugin numa-aware and devices: which GPUs and network cards a pod gets."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.tests.support import default_sessions, numa_machines, sessions
from services.scheduler.tests.support.harness import SchedulerHarness, draft
from services.scheduler.tests.support.numa_machines import (
    GPU,
    aligning,
    container,
    holding,
    node,
    observed,
)
from stromboli.scheduler.core import policy
from stromboli.scheduler.core import schedule as session_core
from stromboli.scheduler.core.framework import interfaces, session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.plugins.numa_aware import numa_aware
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import core, meta
from stromboli.shared.messages import node_topology as notified
from stromboli.testkit import builders

TIER: sessions.Tier = [
    sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")
] + [sessions.plugin("numa-aware", {"weight": 1000})]


def pods(name: str, *containers: core.Container, count: int = 1, **more: Any) -> list[meta.Object]:
    return default_sessions.gang(name, count, containers=list(containers), **more)


def closed(*objects: msgspec.Struct, run: str = "allocate") -> session.Session:
    return default_sessions.closed(*objects, tier=TIER, run=run)


def devices(decided: session.Session, resource: str = GPU) -> dict[str, list[str]]:
    """Pod -> what its first container gets, without the node's name."""
    return {
        key.partition("/")[2]: [
            each.rpartition("-")[2]
            for each in next(iter(msgspec.json.decode(notes[keys.DEVICES]).values()))[resource]
        ]
        for key, notes in decided.decisions.annotations.items()
        if keys.DEVICES in notes
    }


# Which


def test_gpus_of_a_quad_go_together() -> None:
    """On a cube mesh four GPUs are a quad, and a pair of the other quad has two links."""
    cube = observed(nvlinks=numa_machines.CUBE_MESH)
    decided = closed(node(), cube, *pods("a", container(gpus=4)), *pods("b", container(gpus=2)))
    assert devices(decided) == {"a-0": ["0", "1", "2", "3"], "b-0": ["4", "7"]}


def test_a_single_gpu_is_the_one_that_the_others_miss_least() -> None:
    """The rest of a pair in use is taken first."""
    decided = closed(
        node(gpus=4),
        observed(gpus=4, nvlinks={(0, 1): 4, (2, 3): 4}, exclusive_allocations=[holding("x-0", 2)]),
        *pods("x", container(gpus=1), node="n1"),
        *pods("a", container(gpus=1)),
    )
    assert devices(decided) == {"a-0": ["3"]}


def test_a_machine_with_a_whole_clique_left_is_better_for_two() -> None:
    """Both have two GPUs left; on n2 they are linked."""
    pairs = {(0, 1): 4, (2, 3): 4}
    decided = closed(
        node("n1", 4),
        node("n2", 4),
        observed("n1", gpus=4, nvlinks=pairs, exclusive_allocations=[holding("x-0", 0, 2)]),
        observed(
            "n2", gpus=4, nvlinks=pairs, exclusive_allocations=[holding("y-0", 2, 3, node="n2")]
        ),
        *pods("x", container(gpus=2), node="n1"),
        *pods("y", container(gpus=2), node="n2"),
        *pods("a", container(gpus=2)),
    )
    assert default_sessions.binds(decided) == {"a-0": "n2"}
    assert devices(decided) == {"a-0": ["0", "1"]}


def test_cpus_gpus_memory_and_network_cards_come_from_one_numa_node() -> None:
    """NUMA node 0 has the CPUs but only one free GPU; everything is taken from node 1."""
    kubelet = aligning("single-numa-node", memory_policy="Static")
    there = observed(gpus=4, nics=4, kubelet=kubelet, exclusive_allocations=[holding("x-0", 0)])
    wants = container(gpus=2, cpu=3, memory="4Gi", rdma__hca=2)
    decided = closed(
        node(gpus=4, rdma__hca=4),
        there,
        *pods("x", container(gpus=1), node="n1"),
        *pods("a", wants),
    )
    notes = decided.decisions.annotations["default/a-0"]
    assert notes[keys.CPUS] == '{"main":"4-6"}'
    assert msgspec.json.decode(notes[keys.DEVICES]) == {
        "main": {GPU: ["GPU-n1-2", "GPU-n1-3"], "rdma/hca": ["mlx5_2", "mlx5_3"]}
    }
    assert msgspec.json.decode(notes[keys.TOPOLOGY_DECISION]) == {
        "numa": {"1": {"cpu": "3", "memory": str(4 * 2**30), GPU: "2", "rdma/hca": "2"}}
    }


@pytest.mark.parametrize("cpu_policy", ["static", "none"])
def test_memory_of_a_pod_without_whole_cpus_is_aligned(cpu_policy: str) -> None:
    """The memory manager assigns memory to every pod of class Guaranteed."""
    kubelet = notified.KubeletConfiguration(
        cpu_policy=cpu_policy, memory_policy="Static", topology_policy="single-numa-node"
    )
    there = observed(gpus=0, pod_memory=12 * 2**30, kubelet=kubelet)
    wants = pods("a", container(cpu="100m", memory="10Gi"), count=3, min_member=1)
    decided = closed(node(gpus=0), there, *wants)
    decisions = {
        key: msgspec.json.decode(notes[keys.TOPOLOGY_DECISION])["numa"]
        for key, notes in decided.decisions.annotations.items()
    }
    memory = str(10 * 2**30)
    assert decisions == {
        "default/a-0": {"0": {"memory": memory}},
        "default/a-1": {"1": {"memory": memory}},
    }
    assert set(default_sessions.binds(decided)) == {"a-0", "a-1"}


@pytest.mark.parametrize(("pod_memory", "fits"), [(None, True), (12, True), (8, False), (0, False)])
def test_reserved_memory_of_a_numa_node_is_not_for_pods(
    pod_memory: int | None, *, fits: bool
) -> None:
    """The kubelet would reject the pod with TopologyAffinityError."""
    there = observed(
        gpus=0,
        pod_memory=None if pod_memory is None else pod_memory * 2**30,
        kubelet=aligning("single-numa-node", memory_policy="Static"),
    )
    decided = closed(node(gpus=0), there, *pods("a", container(cpu=1, memory="10Gi")))
    assert default_sessions.binds(decided) == ({"a-0": "n1"} if fits else {})
    if not fits:
        assert refusals(decided) == {numa_aware.MISFIT: 1}


def test_gpus_that_lie_apart_are_a_misfit_where_one_numa_node_is_insisted_on() -> None:
    kubelet = aligning("single-numa-node")
    exclusive_allocation = holding("x-0", 0, 2)
    running = pods("x", container(gpus=2), node="n1")
    wants = pods("a", container(gpus=2))
    there = observed(gpus=4, kubelet=kubelet, exclusive_allocations=[exclusive_allocation])
    decided = closed(node(gpus=4), there, *running, *wants)
    assert refusals(decided) == {numa_aware.MISFIT: 1}
    easy = observed(
        gpus=4, kubelet=aligning("best-effort"), exclusive_allocations=[exclusive_allocation]
    )
    assert devices(closed(node(gpus=4), easy, *running, *wants)) == {"a-0": ["1", "3"]}


def test_the_network_card_is_the_one_near_the_gpu() -> None:
    decided = closed(
        node(gpus=4, rdma__hca=4),
        observed(
            gpus=4,
            nics=4,
            nvlinks={(0, 1): 4, (2, 3): 4},
            exclusive_allocations=[holding("x-0", 0)],
        ),
        *pods("x", container(gpus=1), node="n1"),
        *pods("a", container(gpus=1, rdma__hca=1)),
    )
    assert devices(decided) == {"a-0": ["1"]}
    assert devices(decided, "rdma/hca") == {"a-0": ["mlx5_1"]}


def test_shared_network_cards_are_never_used_up() -> None:
    decided = closed(
        node(gpus=2, rdma__hca=64),
        observed(gpus=2, nics=1),
        *pods("a", container(gpus=1, rdma__hca=1), count=2),
    )
    assert devices(decided, "rdma/hca") == {"a-0": ["mlx5_0"], "a-1": ["mlx5_0"]}


def test_slices_of_one_gpu_are_taken_before_those_of_another() -> None:
    """Unused GPUs stay complete."""
    mig: dict[str, Any] = {"nvidia.com__mig-1g.10gb": 1}
    has: dict[str, Any] = {"nvidia.com__mig-1g.10gb": 4}
    decided = closed(
        node(gpus=0, **has),
        observed(
            gpus=2,
            slices={0: ["1g.10gb"] * 2, 1: ["1g.10gb"] * 2},
            exclusive_allocations=[
                notified.ExclusiveAllocation(
                    namespace="default",
                    pod="x-0",
                    devices=(
                        notified.AllocatedDevices(
                            resource="nvidia.com/mig-1g.10gb", ids=("MIG-n1-1-0",)
                        ),
                    ),
                )
            ],
        ),
        *pods("x", container(**mig), node="n1"),
        *pods("a", container(**mig)),
    )
    assert msgspec.json.decode(decided.decisions.annotations["default/a-0"][keys.DEVICES]) == {
        "main": {"nvidia.com/mig-1g.10gb": ["MIG-n1-1-1"]}
    }


def test_a_pod_as_a_whole_lies_on_one_numa_node_where_its_kubelet_aligns_pods() -> None:
    """Container by container each has its own; together they are too many."""
    two = [container(name, cpu=3, memory="1Gi") for name in ("c0", "c1")]
    for scope, count in (("container", 1), ("pod", 0)):
        kubelet = aligning("single-numa-node", topology_scope=scope)
        decided = closed(node(gpus=0), observed(gpus=0, kubelet=kubelet), *pods("a", *two))
        assert len(default_sessions.binds(decided)) == count


def test_init_containers_are_aligned_too() -> None:
    """It is refused by the kubelet although the pod's others would fit."""
    kubelet = aligning("single-numa-node")
    big = container("first", cpu=5, memory="1Gi")
    (group, pod) = pods("a", container(cpu=1, memory="1Gi"))
    assert isinstance(pod, core.Pod)
    spec = msgspec.structs.replace(pod.spec, init_containers=(big,))
    decided = closed(
        node(gpus=0),
        observed(gpus=0, kubelet=kubelet),
        group,
        msgspec.structs.replace(pod, spec=spec),
    )
    assert default_sessions.binds(decided) == {}


# Unsatisfiable requests


def refusals(decided: session.Session, name: str = "a") -> Mapping[str, int]:
    job = decided.jobs[f"default/{name}"]
    return dict(job.fit_errors[f"pod-default-{name}-0"].refusals)


def test_a_gpu_that_is_not_well_is_not_given() -> None:
    decided = closed(node(gpus=2), observed(gpus=2, sick=[0]), *pods("a", container(gpus=1)))
    assert devices(decided) == {"a-0": ["1"]}
    both = closed(node(gpus=2), observed(gpus=2, sick=[0]), *pods("a", container(gpus=2)))
    assert refusals(both) == {numa_aware.TOO_FEW: 1}


def test_a_gpu_that_vanishes_belongs_to_no_pod() -> None:
    """The share of a pod in it does not affect other pods."""
    decided = closed(
        node(gpus=1),
        observed(gpus=1, exclusive_allocations=[holding("x-0", 3)]),
        *pods("x", container(), node="n1"),
        *pods("a", container(gpus=1)),
    )
    assert devices(decided) == {"a-0": ["0"]}


def test_gpus_that_are_counted_in_parts_have_no_identity() -> None:
    """Its plugin gives each to several in turns: the pod is placed, and nothing is claimed."""
    decided = closed(node(gpus=16), observed(gpus=4), *pods("a", container(gpus=1)))
    assert default_sessions.binds(decided) == {"a-0": "n1"}
    assert devices(decided) == {}


def test_nothing_is_chosen_beside_a_pod_with_unknown_gpus() -> None:
    """Another client bound it to the node, and the node's report does not contain its GPUs."""
    decided = closed(
        node(gpus=2),
        observed(gpus=2),
        *pods("x", container(gpus=1), node="n1"),
        *pods("a", container(gpus=1)),
    )
    assert default_sessions.binds(decided) == {"a-0": "n1"}
    assert devices(decided) == {}


@pytest.mark.parametrize(("decided_gpus", "chosen"), [((), {}), (("GPU-n1-0",), {"a-0": ["1"]})])
def test_gpus_of_a_pod_that_is_reported_with_cpus_alone_are_not_free(
    decided_gpus: tuple[str, ...], chosen: dict[str, list[str]]
) -> None:
    """A kubelet's state files contain CPUs and no devices: devices are those decided, if known."""
    notes = {keys.DEVICES: json.dumps({"main": {GPU: decided_gpus}})} if decided_gpus else {}
    decided = closed(
        node(gpus=2),
        observed(gpus=2, exclusive_allocations=[holding("x-0", cpus="1")]),
        *pods("x", container(gpus=1, cpu=1), node="n1", annotations=notes),
        *pods("a", container(gpus=1)),
    )
    assert default_sessions.binds(decided) == {"a-0": "n1"}
    assert devices(decided) == chosen


def test_a_node_with_a_silent_agent_takes_no_pod_that_requires_alignment() -> None:
    """Others go there as before."""
    there = observed(gpus=0, kubelet=aligning("single-numa-node"), silent_since=builders.NOON)
    wants = container(cpu=1, memory="1Gi")
    insists = {keys.NUMA_TOPOLOGY_POLICY: "single-numa-node"}
    decided = closed(node(gpus=0), there, *pods("a", wants, annotations=insists))
    assert refusals(decided) == {numa_aware.SILENT: 1}
    assert default_sessions.binds(closed(node(gpus=0), there, *pods("a", wants))) == {"a-0": "n1"}


def test_unknown_link_types_are_reported_and_the_report_is_ignored() -> None:
    there = observed(gpus=4, near="XYZ")
    decided = closed(node(gpus=4), there, *pods("a", container(gpus=1)))
    assert default_sessions.binds(decided) == {"a-0": "n1"}
    assert any("hardware of node n1: 'XYZ' is not one of" in each for each in decided.complaints)


# Who has what


def test_what_a_trial_took_is_free_again() -> None:
    """A gang that needs five GPUs of four leaves them to the next."""
    decided = closed(
        node(gpus=4),
        observed(gpus=4),
        *pods("a", container(gpus=1), count=5),
        *pods("b", container(gpus=4)),
    )
    assert devices(decided) == {"b-0": ["0", "1", "2", "3"]}


def test_a_victims_gpus_are_free_for_its_preemptor() -> None:
    """Evicted in a placement that is rolled back, it has its previous GPUs."""
    ssn = default_sessions.opened(
        node(gpus=4),
        observed(gpus=4, exclusive_allocations=[holding("x-0", 0, 1)]),
        *pods("x", container(gpus=2), node="n1"),
        *pods("a", container(gpus=3)),
        *pods("b", container(gpus=2)),
        tier=TIER,
    )
    victim, principal, other = (
        next(iter(ssn.jobs[f"default/{name}"].tasks.values())) for name in ("x", "a", "b")
    )
    assert not fits(ssn, principal)
    trial = ssn.statement()
    trial.evict(victim, "to try")
    assert fits(ssn, principal)
    trial.pipeline(principal, "n1")
    trial.discard()
    assert not fits(ssn, principal)
    again = ssn.statement()
    again.allocate(other, "n1")
    again.commit()
    assert devices(ssn) == {"b-0": ["2", "3"]}


def fits(ssn: session.Session, task: entities.Task) -> bool:
    """Whether the plugin finds devices for the task on the only node."""
    view = node_views.NodeView(ssn.nodes, task)
    found = [
        check
        for tests in ssn.functions(interfaces.PREDICATE)
        for test in tests
        for check in test(task, view)
        if check.reason == numa_aware.TOO_FEW
    ]
    return all(bool(check.passed.all()) for check in found)


def test_decided_devices_are_in_use_before_the_nodes_report_and_after_a_restart() -> None:
    """A decision in flight, a bound pod, a report that lags behind: each GPU is given once."""
    numa_node = SchedulerHarness()
    numa_node.see(builders.make_queue(), node(gpus=4))
    numa_node.apply(numa_node.log.append(reported_draft(observed(gpus=4))))
    numa_node.see(*pods("a", container(gpus=2)))
    first = written(numa_node)
    assert first == {"a-0": ["GPU-n1-0", "GPU-n1-1"]}
    numa_node.see(*pods("b", container(gpus=2)))
    assert written(numa_node) == {"b-0": ["GPU-n1-2", "GPU-n1-3"]}
    numa_node.answer("refused", "a-0", decision=0)
    assert written(numa_node) == first


def reported_draft(message: notified.TopologyObserved) -> envelope.Draft:
    return envelope.Draft(
        topic=topics.TOPOLOGY, key=message.node, message=message, time=builders.NOON
    )


def written(numa_node: SchedulerHarness) -> dict[str, list[str]]:
    """The GPUs that the next session's binds write."""
    how = policy.Policy(configured=sessions.configured(TIER))
    decided = session_core.run_session(numa_node.cache, builders.NOON, how)
    for each in decided.decisions:
        numa_node.apply(numa_node.log.append(draft(topics.DECISIONS, each.pod_group, each)))
    return {
        bind.pod: msgspec.json.decode(bind.annotations[keys.DEVICES])["main"][GPU]
        for each in decided.decisions
        for bind in each.binds
    }


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(1, 4)),
        st.tuples(st.just("go"), st.integers(0, 5)),
        st.tuples(st.just("report"), st.integers(0, 5)),
    ),
    max_size=12,
)


@given(STEPS, st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]))
@settings(max_examples=60)
def test_no_gpu_and_no_cpu_is_given_twice(steps: list[tuple[str, int]], kubelets: str) -> None:
    """Whatever is created, deleted and reported at any time: each session follows a restart and
    knows objects only. Released devices are allocated again: a pod that does not fit finds them in
    use.
    """
    running: dict[str, core.Pod] = {}
    reported: dict[str, notified.ExclusiveAllocation] = {}
    for at, (what, number) in enumerate(steps):
        if what == "go" and running:
            gone = sorted(running)[number % len(running)]
            del running[gone]
            reported.pop(gone, None)
        elif what == "report" and running:
            seen = sorted(running)[number % len(running)]
            reported[seen] = held(running[seen])
        elif what == "come":
            there = observed(
                gpus=4, exclusive_allocations=list(reported.values()), kubelet=aligning(kubelets)
            )
            wants = pods(f"g{at}", container(gpus=number, cpu=number, memory="1Gi"))
            decided = closed(node(gpus=4), there, *running.values(), *wants)
            taken = sum(len(held(pod).devices[0].ids) for pod in running.values())
            for name in default_sessions.binds(decided):
                running[name] = bound(wants[1], decided.decisions.annotations[f"default/{name}"])
            if kubelets in ("none", "best-effort"):
                assert len(default_sessions.binds(decided)) == (number <= 4 - taken)
        gpus = [each for pod in running.values() for each in held(pod).devices[0].ids]
        assert len(gpus) == len(set(gpus))
        if kubelets != "none":
            cpus = [each for pod in running.values() for each in own_cpus(pod)]
            assert len(cpus) == len(set(cpus))


def bound(pod: meta.Object, notes: Mapping[str, str]) -> core.Pod:
    assert isinstance(pod, core.Pod)
    merged = {**(pod.metadata.annotations or {}), **notes}
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, annotations=merged),
        spec=msgspec.structs.replace(pod.spec, node_name="n1"),
        status=msgspec.structs.replace(pod.status),
    )


def held(pod: core.Pod) -> notified.ExclusiveAllocation:
    notes = pod.metadata.annotations or {}
    ids = msgspec.json.decode(notes[keys.DEVICES])["main"][GPU]
    cpus = msgspec.json.decode(notes.get(keys.CPUS, "{}")).get("main", "")
    return notified.ExclusiveAllocation(
        namespace="default",
        pod=pod.metadata.name,
        cpus=cpus,
        devices=(notified.AllocatedDevices(resource=GPU, ids=tuple(ids)),),
    )


def own_cpus(pod: core.Pod) -> frozenset[int]:
    from stromboli.shared.formats import cpu_lists

    return cpu_lists.parsed(held(pod).cpus)


@pytest.mark.parametrize("gone", [True, False])
def test_a_report_that_is_deleted_or_cannot_be_read_is_none(gone: bool) -> None:
    """The pod is placed as without a report; earlier reports are not used."""
    numa_node = SchedulerHarness()
    numa_node.see(builders.make_queue(), node(gpus=4))
    numa_node.apply(numa_node.log.append(reported_draft(observed(gpus=4))))
    if gone:
        empty = envelope.Draft(topic=topics.TOPOLOGY, key="n1", message=None, time=builders.NOON)
        numa_node.apply(numa_node.log.append(empty))
    else:
        numa_node.apply(numa_node.log.garble(topics.TOPOLOGY, "n1"))
    assert numa_node.cache.model.auxiliary.hardware == {}
