"""The plugin numa-aware: feasible nodes, chosen CPUs, and pods that it ignores."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support import default_sessions, sessions
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.plugins.numa_aware import numa_aware
from stromboli.shared import keys
from stromboli.shared.api import core, meta, numa, scheduling
from stromboli.testkit import builders

TIER: sessions.Tier = [
    sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")
] + [sessions.plugin("numa-aware", {"weight": 1000})]


def report(
    node: str,
    free: str = "0-7",
    policy: str = "single-numa-node",
    *,
    manager: str = "static",
    reserved: str = "0",
    holders: Sequence[numa.PodAllocation] = (),
) -> numa.Numatopology:
    """Eight CPUs, one to a core, four to a NUMA node."""
    return numa.Numatopology(
        metadata=builders.make_meta("numatopology", node),
        spec=numa.NumatopologySpec(
            policies={"CPUManagerPolicy": manager, "TopologyManagerPolicy": policy},
            res_reserved={"cpu": reserved},
            numares={"cpu": numa.NumaResource(allocatable=free, capacity=8)},
            cpu_detail={
                str(cpu): numa.CpuPlace(numa=cpu // 4, socket=cpu // 4, core=cpu)
                for cpu in range(8)
            },
            pod_allocations=tuple(holders),
        ),
    )


def container(name: str, cpu: int | str, limit: int | str | None = None) -> core.Container:
    limits: dict[str, core.Quantity] = {"cpu": cpu if limit is None else limit, "memory": "1Gi"}
    return core.Container(
        name=name,
        resources=core.ResourceRequirements(requests={"cpu": cpu, "memory": "1Gi"}, limits=limits),
    )


def pod(name: str, *cpu: int | str, policy: str = "single-numa-node", **more: Any) -> core.Pod:
    notes = {keys.NUMA_TOPOLOGY_POLICY: policy} if policy else {}
    return builders.make_pod(
        name,
        "g",
        containers=[container(f"c{at}", each) for at, each in enumerate(cpu)],
        annotations={**notes, **more.pop("annotations", {})},
        **more,
    )


def group(least: int = 1) -> scheduling.PodGroup:
    return builders.make_pod_group("g", least)


def closed(*objects: meta.Object) -> session.Session:
    return default_sessions.closed(*objects, tier=TIER)


def meant(decided: session.Session) -> dict[str, dict[str, str]]:
    """Pod -> container -> CPUs."""
    return {
        key.partition("/")[2]: msgspec.json.decode(notes[keys.CPUS])
        for key, notes in decided.decisions.annotations.items()
    }


def refusals(decided: session.Session, name: str = "g-0") -> dict[str, int]:
    job = decided.jobs["default/g"]
    return dict(job.fit_errors[f"pod-default-{name}"].refusals)


def test_a_pod_goes_to_a_node_where_one_numa_node_has_its_cpus() -> None:
    """Eight CPUs are free on both nodes, but on n1 they are scattered."""
    nodes = [builders.make_node(f"n{at}", cpu=8) for at in (1, 2)]
    decided = closed(*nodes, report("n1", "2-5"), report("n2", "1-3,5-7"), group(), pod("g-0", 3))
    assert default_sessions.binds(decided) == {"g-0": "n2"}
    assert meant(decided) == {"g-0": {"c0": "1-3"}}


def test_each_task_takes_its_cpus_from_the_next() -> None:
    """Two pods of three: one to each NUMA node, the third waits."""
    pods = [pod(f"g-{at}", 3) for at in range(3)]
    decided = closed(builders.make_node("n1", cpu=16), report("n1"), group(2), *pods)
    assert meant(decided) == {"g-0": {"c0": "0-2"}, "g-1": {"c0": "4-6"}}
    assert refusals(decided, "g-2") == {numa_aware.MISFIT: 1}


def test_what_a_trial_took_back_is_free_again() -> None:
    """A gang of three does not fit, and a smaller one gets its CPUs."""
    other = builders.make_pod_group("h", 1)
    late = msgspec.structs.replace(
        pod("h-0", 4),
        metadata=builders.make_meta(
            "pod",
            "h-0",
            "default",
            annotations={
                keys.GROUP_NAME: "h",
                keys.NUMA_TOPOLOGY_POLICY: "single-numa-node",
            },
        ),
    )
    pods = [pod(f"g-{at}", 3) for at in range(3)]
    decided = closed(builders.make_node("n1", cpu=16), report("n1"), group(3), *pods, other, late)
    assert meant(decided) == {"h-0": {"c0": "0-3"}}


def test_containers_are_aligned_one_after_another() -> None:
    """The second one has what the first one left; fractions share."""
    decided = closed(
        builders.make_node("n1", cpu=16), report("n1"), group(), pod("g-0", 3, 2, "1500m")
    )
    assert meant(decided) == {"g-0": {"c0": "0-2", "c1": "4,5"}}


def test_reserved_cpus_are_no_pods() -> None:
    decided = closed(
        builders.make_node("n1", cpu=16), report("n1", reserved="1500m"), group(), pod("g-0", 4)
    )
    assert meant(decided) == {"g-0": {"c0": "4-7"}}


@pytest.mark.parametrize(
    ("objs", "reason"),
    [
        ([], numa_aware.NO_REPORT),
        ([report("n1", manager="none")], numa_aware.NOT_STATIC),
        ([report("n1", policy="restricted")], numa_aware.OTHER_POLICY),
        ([report("n1", free="")], numa_aware.MISFIT),
    ],
)
def test_a_pod_that_requires_alignment_has_the_reasons_of_its_nodes(
    objs: Sequence[meta.Object], reason: str
) -> None:
    decided = closed(builders.make_node("n1", cpu=16), *objs, group(), pod("g-0", 3))
    assert default_sessions.binds(decided) == {}
    assert refusals(decided) == {reason: 1}


def test_a_node_that_aligns_does_so_for_pods_that_say_nothing() -> None:
    """Its kubelet would refuse them, too; others take them."""
    node = builders.make_node("n1", cpu=16)
    silent = pod("g-0", 5, policy="")
    assert default_sessions.binds(closed(node, report("n1"), group(), silent)) == {}
    for easy in (report("n1", policy="none"), report("n1", manager="none")):
        assert default_sessions.binds(closed(node, easy, group(), silent)) == {"g-0": "n1"}
    assert default_sessions.binds(closed(node, group(), silent)) == {"g-0": "n1"}


def test_a_pod_that_is_not_guaranteed_is_let_be() -> None:
    """The kubelet allocates no exclusive CPUs to it, so there is nothing to filter."""
    burst = builders.make_pod(
        "g-0",
        "g",
        containers=[container("c0", 5, limit=6)],
        annotations={keys.NUMA_TOPOLOGY_POLICY: "single-numa-node"},
    )
    decided = closed(builders.make_node("n1", cpu=16), report("n1"), group(), burst)
    assert default_sessions.binds(decided) == {"g-0": "n1"}
    assert meant(decided) == {}


def test_cpus_meant_for_a_pod_count_until_its_node_reports_it() -> None:
    """Each pod by itself: by its uid or its name, whichever the report has."""
    node = builders.make_node("n1", cpu=16)
    bound = [
        pod(f"g-{at}", 3, node="n1", phase="Running", annotations={keys.CPUS: '{"c0":"0-2"}'})
        for at in (8, 9)
    ]
    waits = pod("g-0", 3)
    late = closed(node, report("n1"), group(), bound[0], waits)
    assert meant(late) == {"g-0": {"c0": "4-6"}}
    by_uid = numa.PodAllocation(uid=bound[0].metadata.uid)
    by_name = numa.PodAllocation(name="g-8", namespace="default")
    for holder in (by_uid, by_name):
        # Reported: the list of free CPUs contains the actual allocation.
        seen = closed(node, report("n1", holders=[holder]), group(), bound[0], waits)
        assert meant(seen) == {"g-0": {"c0": "0-2"}}
    both = closed(node, report("n1", holders=[by_uid]), group(), *bound, waits)
    assert meant(both) == {"g-0": {"c0": "4-6"}}


def test_fewer_numa_nodes_are_better() -> None:
    """For best-effort both nodes will do."""
    nodes = [builders.make_node(f"n{at}", cpu=8) for at in (1, 2)]
    reports = [report("n1", "2-5", "best-effort"), report("n2", "1-3,5-7", "best-effort")]
    decided = closed(*nodes, *reports, group(), pod("g-0", 3, policy="best-effort"))
    assert default_sessions.binds(decided) == {"g-0": "n2"}


@pytest.mark.parametrize(
    ("free", "detail", "said"),
    [
        ("0-9", None, "Numatopology n1: CPUs 8,9 are free but not in cpuDetail"),
        ("x", None, "Numatopology n1: invalid literal for int() with base 10: 'x'"),
        (
            "",
            {str(cpu): numa.CpuPlace(numa=cpu) for cpu in range(9)},
            "Numatopology n1: 9 NUMA nodes; kubelets support at most 8",
        ),
    ],
)
def test_an_invalid_report_counts_as_missing(
    free: str, detail: dict[str, numa.CpuPlace] | None, said: str
) -> None:
    """It is reported, and pods that require an alignment are not placed on the node."""
    numatopology = report("n1", free)
    if detail is not None:
        spec = msgspec.structs.replace(numatopology.spec, cpu_detail=detail)
        numatopology = msgspec.structs.replace(numatopology, spec=spec)
    decided = closed(builders.make_node("n1", cpu=16), numatopology, group(), pod("g-0", 3))
    assert said in decided.complaints
    assert refusals(decided) == {numa_aware.NO_REPORT: 1}
