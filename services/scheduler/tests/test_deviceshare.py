"""The plugin deviceshare: parts of GPU GPUs, GPUs by number, divided GPUs, in trials too."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.tests.support import default_sessions, sessions
from services.scheduler.tests.support.harness import SchedulerHarness, draft
from stromboli.scheduler.core import policy, simulate
from stromboli.scheduler.core import schedule as session_core
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.plugins.deviceshare import deviceshare
from stromboli.shared import topics
from stromboli.shared.api import core, meta
from stromboli.testkit import builders

IDS = "volcano.sh/vgpu-ids-new"
GEOMETRIES = [
    {
        "models": ["A100"],
        "allowedGeometries": [
            {
                "group": "g1",
                "geometries": [
                    {"name": "1g", "memory": 5000, "count": 2},
                    {"name": "2g", "memory": 10000, "count": 2},
                ],
            },
            {"group": "g2", "geometries": [{"name": "7g", "memory": 40000, "count": 1}]},
        ],
    }
]


def tier(kind: str = "VGPUEnable", **arguments: Any) -> sessions.Tier:
    written = {f"deviceshare.{name}": value for name, value in arguments.items()}
    written[f"deviceshare.{kind}"] = True
    return [*default_sessions.TIER, sessions.plugin("deviceshare", written)]


def vgpu_node(
    name: str,
    *gpus: str,
    annotations: Mapping[str, str] | None = None,
    cpu: str = "64",
) -> core.Node:
    """Cards as ``id,memory`` with further fields as the register has them: users 10, an A100."""
    written = []
    for gpu in gpus:
        uuid, memory, *optional = gpu.split(",")
        users, kind, health, mode = [
            *optional,
            *("10", "NVIDIA-A100", "true", "hami-core")[len(optional) :],
        ]
        written.append(f"{uuid},{users},{memory},{kind},{health},{mode}:")
    node = builders.make_node(
        name,
        cpu=cpu,
        extra={
            "volcano.sh/vgpu-number": 10 * len(gpus),
            "volcano.sh/vgpu-memory": 10**6,
            "volcano.sh/vgpu-cores": 100 * len(gpus),
        },
    )
    return noted(node, {"volcano.sh/node-vgpu-register": "".join(written), **(annotations or {})})


def gpu_node(name: str, number: int, memory: int, unhealthy: str = "") -> core.Node:
    node = builders.make_node(
        name, extra={"volcano.sh/gpu-number": number, "volcano.sh/gpu-memory": memory}
    )
    return noted(node, {"volcano.sh/gpu-unhealthy-ids": unhealthy}) if unhealthy else node


def noted(node: core.Node, annotations: Mapping[str, str]) -> core.Node:
    metadata = msgspec.structs.replace(node.metadata, annotations=dict(annotations))
    return msgspec.structs.replace(node, metadata=metadata)


def wants(*, number: int = 0, memory: int = 0, cores: int = 0) -> core.Container:
    requested = {"number": number, "memory": memory, "cores": cores}
    limits = {f"volcano.sh/vgpu-{name}": amount for name, amount in requested.items() if amount}
    return core.Container(
        resources=core.ResourceRequirements(requests={"cpu": "1"}, limits=dict(limits))
    )


def gang(name: str, *containers: core.Container, pods: int = 1, **pod: Any) -> list[meta.Object]:
    return default_sessions.gang(name, pods, containers=containers, **pod)


def given_to(decided: session.Session) -> dict[str, str]:
    """Pod -> its GPUs according to its annotations."""
    return {
        key.partition("/")[2]: seen[IDS]
        for key, seen in decided.decisions.annotations.items()
        if IDS in seen
    }


def why(decided: session.Session, group: str = "g") -> str:
    return decided.jobs[f"default/{group}"].explain()


# vGPU


def test_a_pod_gets_memory_and_compute_of_one_gpu() -> None:
    """Its allocation is an annotation for the device plugin; memory alone means one GPU."""
    decided = default_sessions.closed(
        vgpu_node("n1", "A,8000"), *gang("g", wants(memory=3000, cores=30)), tier=tier()
    )
    assert default_sessions.binds(decided) == {"g-0": "n1"}
    seen = decided.decisions.annotations["default/g-0"]
    assert seen == {
        "volcano.sh/vgpu-ids-new": "A,NVIDIA,3000,30:",
        "volcano.sh/devices-to-allocate": "A,NVIDIA,3000,30:",
        "volcano.sh/vgpu-node": "n1",
        "volcano.sh/vgpu-time": str(int(builders.NOON.timestamp())),
        "volcano.sh/bind-time": str(int(builders.NOON.timestamp())),
        "volcano.sh/bind-phase": "allocating",
    }


def test_containers_are_separate_and_gpus_of_one_container_differ() -> None:
    """A container without GPUs has an empty entry between the others."""
    decided = default_sessions.closed(
        vgpu_node("n1", "A,8000", "B,8000"),
        *gang("g", wants(number=2, memory=1000), wants(), wants(number=1, cores=50)),
        tier=tier(),
    )
    assert given_to(decided) == {}
    assert "without enough free GPUs" in why(decided)
    decided = default_sessions.closed(
        vgpu_node("n1", "A,8000", "B,8000"),
        *gang("g", wants(number=2, memory=1000), wants(), wants(memory=500, cores=50)),
        tier=tier(),
    )
    assert given_to(decided) == {"g-0": "B,NVIDIA,1000,0:A,NVIDIA,1000,0:;;B,NVIDIA,500,50:"}


@pytest.mark.parametrize(
    ("gpu", "demand", "fits"),
    [
        ("A,8000", wants(memory=8000), True),
        ("A,8000", wants(memory=8001), False),
        ("A,8000", wants(number=1), True),
        ("A,8000,10,NVIDIA-A100,false", wants(number=1), False),
        ("A,8000,0", wants(memory=1), False),
        ("A,8000", wants(number=2, memory=1), False),
    ],
)
def test_a_gpu_gives_no_more_than_it_has(gpu: str, demand: core.Container, fits: bool) -> None:
    """Memory, users and GPUs that are well; no memory named means all of the gpu."""
    decided = default_sessions.closed(vgpu_node("n1", gpu), *gang("g", demand), tier=tier())
    assert bool(default_sessions.binds(decided)) == fits


def running(name: str, ids: str, *containers: core.Container, **pod: Any) -> list[meta.Object]:
    return gang(name, *containers, node="n1", annotations={IDS: ids}, **pod)


@pytest.mark.parametrize(
    ("there", "demand", "fits"),
    [
        ("A,NVIDIA,5000,60:", wants(memory=3000, cores=40), True),
        ("A,NVIDIA,5000,60:", wants(memory=3001, cores=40), False),
        ("A,NVIDIA,5000,60:", wants(memory=3000, cores=41), False),
        ("A,NVIDIA,5000,0:", wants(memory=1000, cores=100), False),
        ("A,NVIDIA,5000,100:", wants(memory=1000), False),
        ("gone,NVIDIA,8000,100:", wants(memory=8000), True),
        ("A,NVIDIA,2000,0:;A,NVIDIA,4000,0:", wants(memory=3000), False),
        ("A,NVIDIA", wants(memory=1), False),
    ],
)
def test_what_pods_have_is_read_from_them(there: str, demand: core.Container, fits: bool) -> None:
    """All containers count, full compute is exclusive, and what cannot be read blocks."""
    old = running("old", there, wants(memory=1), wants(memory=1))
    decided = default_sessions.closed(
        vgpu_node("n1", "A,8000"), *old, *gang("g", demand), tier=tier()
    )
    assert bool(default_sessions.binds(decided)) == fits
    assert ("invalid GPU annotations or GPU allocations" in why(decided)) == (there == "A,NVIDIA")


@pytest.mark.parametrize(
    ("annotations", "gpu"),
    [
        ({"nvidia.com/use-gputype": "t4,a100"}, "A"),
        ({"nvidia.com/nouse-gputype": "A100"}, "V"),
        ({"volcano.sh/vgpu-use-gpuuuid": "V,A", "volcano.sh/vgpu-nouse-gpuuuid": "V"}, "A"),
        ({"volcano.sh/vgpu-mode": "hami-core"}, "V"),
        ({"volcano.sh/vgpu-mode": "mig"}, ""),
    ],
)
def test_annotations_choose_among_gpus(annotations: dict[str, str], gpu: str) -> None:
    """Types by a part of their name in any case, GPUs by their id, deny wins; the mode exactly."""
    node = vgpu_node("n1", "A,8000,10,NVIDIA-A100", "V,8000,10,NVIDIA-V100")
    pods = gang("g", wants(memory=1000), annotations=annotations)
    decided = default_sessions.closed(node, *pods, tier=tier())
    assert given_to(decided) == ({"g-0": f"{gpu},NVIDIA,1000,0:"} if gpu else {})


@pytest.mark.parametrize(
    ("policy", "gpu"), [("binpack", "A"), ("spread", "B"), ("", "C"), ("fragmentation", "A")]
)
def test_the_policy_chooses_the_gpu(policy: str, gpu: str) -> None:
    """The fullest, the one with fewest users, the last, or what leaves most to others."""
    old = running("old", "A,NVIDIA,4000,0:", wants(memory=4000))
    other = running("other", "C,NVIDIA,1000,0:", wants(memory=1000))
    node = vgpu_node("n1", "A,8000", "B,8000", "C,8000")
    pods = gang("g", wants(memory=4000))
    decided = default_sessions.closed(node, *old, *other, *pods, tier=tier(SchedulePolicy=policy))
    assert given_to(decided) == {"g-0": f"{gpu},NVIDIA,4000,0:"}


@pytest.mark.parametrize(("policy", "node"), [("binpack", "n1"), ("spread", "n2")])
def test_the_policy_chooses_the_node_with_a_weight(policy: str, node: str) -> None:
    """Without a weight, GPUs do not count for nodes."""
    old = running("old", "A,NVIDIA,4000,0:", wants(memory=4000))
    nodes = [vgpu_node("n1", "A,8000"), vgpu_node("n2", "B,8000")]
    how = tier(SchedulePolicy=policy, ScheduleWeight=100)
    decided = default_sessions.closed(*nodes, *old, *gang("g", wants(memory=1000)), tier=how)
    assert default_sessions.binds(decided) == {"g-0": node}


def test_fragmentation_keeps_whole_gpus_for_pods_that_request_them() -> None:
    """Of two nodes, a fraction is placed on the one with a GPU in use."""
    old = running("old", "A,NVIDIA,4000,0:", wants(memory=4000))
    nodes = [vgpu_node("n1", "A,8000", "B,8000"), vgpu_node("n2", "C,8000", "D,8000")]
    how = tier(SchedulePolicy="fragmentation", ScheduleWeight=100)
    part, whole = gang("g", wants(memory=4000)), gang("w", wants(number=2), pods=1)
    decided = default_sessions.closed(*nodes, *old, *part, *whole, tier=how)
    assert default_sessions.binds(decided) == {"g-0": "n1", "w-0": "n2"}
    assert given_to(decided)["g-0"] == "A,NVIDIA,4000,0:"


def test_pods_of_a_group_that_spreads_share_no_gpu() -> None:
    """Two of three find a gpu of their own."""
    seen = {"volcano.sh/vgpu-podgroup-policy": "spread"}
    pods = default_sessions.gang(
        "g", 3, min_member=1, containers=[wants(memory=1)], annotations=seen
    )
    decided = default_sessions.closed(vgpu_node("n1", "A,8000", "B,8000"), *pods, tier=tier())
    assert sorted(given_to(decided).values()) == ["A,NVIDIA,1,0:", "B,NVIDIA,1,0:"]


def test_pods_of_one_exclusive_rule_share_no_gpu() -> None:
    """Pods of different rules may; so may pods that no rule means."""
    how = tier(GPUExclusiveRules=[{"tier": "gold"}, {"tier": "silver"}])
    pods = [
        *gang("a", wants(memory=1), labels={"tier": "gold"}),
        *gang("b", wants(memory=1), labels={"tier": "gold"}),
        *gang("c", wants(memory=1), labels={"tier": "silver"}),
        *gang("d", wants(memory=1)),
    ]
    decided = default_sessions.closed(vgpu_node("n1", "A,8000"), *pods, tier=how)
    assert sorted(default_sessions.binds(decided)) == ["a-0", "c-0", "d-0"]


# Divided GPUs


def mig_tier() -> sessions.Tier:
    return tier(KnownGeometries=GEOMETRIES)


def test_a_mig_gpu_gives_the_smallest_sufficient_instance() -> None:
    """Instances are counted through their group, and one group holds for the gpu."""
    node = vgpu_node("n1", "A,40000,10,NVIDIA-A100,true,mig")
    pods = [
        *gang("a", wants(memory=4000)),
        *gang("b", wants(memory=6000)),
        *gang("c", wants(memory=40000)),
    ]
    decided = default_sessions.closed(node, *pods, tier=mig_tier())
    assert given_to(decided) == {"a-0": "A[g1-0],NVIDIA,5000,0:", "b-0": "A[g1-2],NVIDIA,10000,0:"}


def test_an_unused_mig_gpu_may_change_its_geometry() -> None:
    node = vgpu_node("n1", "A,40000,10,NVIDIA-A100,true,mig")
    decided = default_sessions.closed(node, *gang("c", wants(memory=40000)), tier=mig_tier())
    assert given_to(decided) == {"c-0": "A[g2-0],NVIDIA,40000,0:"}
    old = running("old", "A[g1-3],NVIDIA,10000,0:", wants(memory=10000))
    pods = default_sessions.gang("g", 2, min_member=1, containers=[wants(memory=9000)])
    decided = default_sessions.closed(node, *old, *pods, tier=mig_tier())
    assert given_to(decided) == {"g-0": "A[g1-2],NVIDIA,10000,0:"}


# GPU share


def test_memory_of_a_gpu_is_found_on_the_lowest_index() -> None:
    """Cards are equal parts of the node's memory; what is unwell is left out."""
    pods = default_sessions.gang("g", 4, min_member=1, cpu="1", extra={"volcano.sh/gpu-memory": 6})
    decided = default_sessions.closed(
        gpu_node("n1", 4, 40, unhealthy="1"), *pods, tier=tier("GPUSharingEnable")
    )
    seen = decided.decisions.annotations
    assert [each["volcano.sh/gpu-index"] for each in seen.values()] == ["0", "2", "3"]
    assert seen["default/g-0"]["volcano.sh/predicate-time"].endswith("000000000")


def test_gpus_by_number_are_unused_gpus() -> None:
    old = default_sessions.gang(
        "old",
        1,
        node="n1",
        extra={"volcano.sh/gpu-number": 1},
        annotations={"volcano.sh/gpu-index": "0"},
    )
    pods = default_sessions.gang("g", 2, min_member=1, extra={"volcano.sh/gpu-number": 2})
    decided = default_sessions.closed(
        gpu_node("n1", 4, 40), *old, *pods, tier=tier("GPUNumberEnable")
    )
    seen = decided.decisions.annotations
    assert {key: each["volcano.sh/gpu-index"] for key, each in seen.items()} == {
        "default/g-0": "1,2"
    }


# Trials and locks


def test_a_discarded_gang_releases_its_gpus() -> None:
    """What a discarded trial was given, the next job may have."""
    big = gang("a", wants(memory=5000), pods=2)
    small = gang("b", wants(memory=5000))
    decided = default_sessions.closed(vgpu_node("n1", "A,8000"), *big, *small, tier=tier())
    assert default_sessions.binds(decided) == {"b-0": "n1"}


def test_a_spared_victim_keeps_its_gpu() -> None:
    """Evicted in a placement that is rolled back: it has exactly its previous GPU."""
    old = running("old", "A,NVIDIA,8000,0:", wants(memory=8000))
    ssn = default_sessions.opened(
        vgpu_node("n1", "A,8000", "B,8000"), *old, *gang("g", wants(memory=8000)), tier=tier()
    )
    victim = next(iter(ssn.jobs["default/old"].tasks.values()))
    principal = next(iter(ssn.jobs["default/g"].tasks.values()))
    trial = ssn.statement()
    trial.evict(victim, "to try")
    trial.pipeline(principal, "n1")
    trial.discard()
    again = ssn.statement()
    again.allocate(principal, "n1")
    again.commit()
    assert given_to(ssn) == {"g-0": "B,NVIDIA,8000,0:"}


def test_a_node_whose_pod_is_set_up_waits_if_locks_are_on() -> None:
    """One pod at a time; what takes longer than five minutes has failed. Others' locks count."""
    now = int(builders.NOON.timestamp())
    how = tier(NodeLockEnable=True)
    pods = default_sessions.gang("g", 2, min_member=1, containers=[wants(memory=1)])
    assert (
        len(
            default_sessions.binds(
                default_sessions.closed(vgpu_node("n1", "A,8000"), *pods, tier=how)
            )
        )
        == 1
    )
    for begun, count in ((now - 60, 0), (now - 301, 1)):
        old = gang(
            "old",
            wants(memory=1),
            node="n1",
            annotations={
                IDS: "A,NVIDIA,1,0:",
                "volcano.sh/bind-time": str(begun),
                "volcano.sh/bind-phase": "allocating",
            },
        )
        decided = default_sessions.closed(vgpu_node("n1", "A,8000"), *old, *pods, tier=how)
        assert len(default_sessions.binds(decided)) == count
    lock = vgpu_node("n1", "A,8000", annotations={"hamivgpu": builders.NOON.isoformat()})
    assert default_sessions.binds(default_sessions.closed(lock, *pods, tier=how)) == {}


# In the running service


def test_assumed_gpus_are_in_use_before_their_pods_are_observed() -> None:
    """The bind writes the GPUs to the pod; a second session counts them, and a refusal
    frees them.
    """
    harness = SchedulerHarness()
    harness.see(builders.make_queue(), vgpu_node("n1", "A,8000"))
    harness.see(*gang("a", wants(memory=5000)))
    assert written(harness) == ["A,NVIDIA,5000,0:"]
    harness.see(*gang("b", wants(memory=5000)))
    assert written(harness) == []
    harness.answer("refused", "a-0")
    assert written(harness) == ["A,NVIDIA,5000,0:"]


def written(harness: SchedulerHarness) -> list[str]:
    """The GPUs that the next session's binds write."""
    how = policy.Policy(configured=sessions.configured(tier()))
    decided = session_core.run_session(harness.cache, builders.NOON, how)
    for each in decided.decisions:
        harness.apply(harness.log.append(draft(topics.DECISIONS, each.pod_group, each)))
    return [bind.annotations[IDS] for each in decided.decisions for bind in each.binds]


# Arguments


def test_two_ways_of_counting_gpus_exclude_each_other() -> None:
    written = {"deviceshare.VGPUEnable": True, "deviceshare.GPUSharingEnable": "true"}
    options = configuration.PluginOptions("deviceshare", arguments=written)
    with pytest.raises(ValueError, match="exclude each other"):
        deviceshare.Plugin(options)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"SchedulePolicy": "pack"}, "'pack' is not one of binpack, spread, fragmentation"),
        ({"GPUExclusiveRules": "x"}, "'x' is not a list of labels"),
        ({"KnownGeometries": [{"models": 1}]}, "is not a list of geometries"),
        ({"KnownGeometriesCMName": "c"}, "ConfigMaps are not read"),
        ({"AscendHAMiVNPUEnable": True}, "Ascend GPUs are not supported"),
    ],
)
def test_a_meaningless_argument_is_reported(arguments: dict[str, Any], complaint: str) -> None:
    ssn = default_sessions.opened(tier=tier(**arguments))
    assert any(complaint in each for each in ssn.complaints)


# Invariants


@given(
    memories=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    pods=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(0, 12), st.integers(0, 100)),
        min_size=1,
        max_size=5,
    ),
    policy=st.sampled_from(["", "binpack", "spread", "fragmentation", "links"]),
)
@settings(max_examples=60)
def test_no_gpu_is_allocated_twice(
    memories: list[int], pods: list[tuple[int, int, int, int]], policy: str
) -> None:
    """Whatever is placed, in runs or one by one, the sums on each gpu stay within it."""
    node = vgpu_node("n1", *(f"C{at},{memory},4" for at, memory in enumerate(memories)))
    jobs = [
        each
        for at, (size, number, memory, cores) in enumerate(pods)
        for each in gang(f"j{at}", wants(number=number, memory=memory, cores=cores), pods=size)
    ]
    decided = default_sessions.closed(
        node, *jobs, tier=tier(SchedulePolicy=policy, ScheduleWeight=1)
    )
    shares = [
        part.split(",")
        for text in given_to(decided).values()
        for part in text.replace(";", "").split(":")
        if part
    ]
    assert set(given_to(decided)) == set(default_sessions.binds(decided))
    for at, memory in enumerate(memories):
        here = [share for share in shares if share[0] == f"C{at}"]
        assert sum(int(share[2]) for share in here) <= memory
        assert sum(int(share[3]) for share in here) <= 100
        assert len(here) <= 4
        assert len(here) == 1 or all(share[3] != "100" for share in here)


def test_runs_are_placed_as_tasks_one_by_one_are() -> None:
    """A gang of ten equal pods on GPUs for four, two and three of them."""
    nodes = [vgpu_node("n1", "A,8000"), vgpu_node("n2", "B,4000"), vgpu_node("n3", "C,6000")]
    pods = default_sessions.gang("g", 10, min_member=1, containers=[wants(memory=2000)])
    decided = default_sessions.closed(
        *nodes, *pods, tier=tier(SchedulePolicy="binpack", ScheduleWeight=10)
    )
    counts = [
        list(default_sessions.binds(decided).values()).count(name) for name in ("n1", "n2", "n3")
    ]
    assert counts == [4, 2, 3]
    statuses = simulate.summarize("", decided).task_status_counts["default/g"]
    assert statuses == {entities.Status.BINDING: 9, entities.Status.PENDING: 1}
