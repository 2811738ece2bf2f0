"""Hypothesis strategies: small clusters for whole sessions, queues and gangs of equal pods.

Pods are generated from templates, so that there are runs of equal pods; nodes are few and small, so
that gangs compete for them.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st

from stromboli.shared.api import core, meta, scheduling
from stromboli.shared.formats import units
from stromboli.testkit import builders

APP = "app"
"""The label that affinity and spread constraints of pods select."""
HIGH, LOW = "high", "low"
_TAINT = core.Taint(key="dedicated", value="batch", effect="NoSchedule")
_SOFT_TAINT = core.Taint(key="tired", effect="PreferNoSchedule")
_TOLERATION = core.Toleration(key="dedicated", operator="Exists")
_ZONE_A = core.NodeSelectorTerm(
    match_expressions=(core.SelectorRequirement(key="zone", operator="In", values=("a",)),)
)


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """The common fields of the pods of one role."""

    cpu: str | None
    memory: str | None
    priority: int | None = None
    node_selector: Mapping[str, str] | None = None
    tolerations: Sequence[core.Toleration] = ()
    affinity: core.Affinity | None = None
    spread: tuple[core.TopologySpreadConstraint, ...] = ()
    host_port: int = 0

    def pod(self, name: str, group: str, role: str, **more: Any) -> core.Pod:
        """A pod of the role, in the PodGroup ``group``."""
        pod = builders.make_pod(
            name,
            group,
            cpu=self.cpu,
            memory=self.memory,
            priority=self.priority,
            node_selector=self.node_selector,
            tolerations=self.tolerations,
            affinity=self.affinity,
            labels={APP: role},
            task=role,
            **more,
        )
        container = pod.spec.containers[0]
        if self.host_port:
            port = core.ContainerPort(host_port=self.host_port)
            container = msgspec.structs.replace(container, ports=(port,))
        spec = msgspec.structs.replace(
            pod.spec, containers=(container,), topology_spread_constraints=self.spread
        )
        return msgspec.structs.replace(pod, spec=spec)


def _selected(role: str) -> core.LabelSelector:
    return core.LabelSelector(match_labels={APP: role})


def _preferred_zone() -> core.Affinity:
    preference = core.PreferredSchedulingTerm(weight=5, preference=_ZONE_A)
    return core.Affinity(
        node_affinity=core.NodeAffinity(
            preferred_during_scheduling_ignored_during_execution=(preference,)
        )
    )


def _anti_affinity(role: str, key: str) -> core.Affinity:
    term = core.PodAffinityTerm(label_selector=_selected(role), topology_key=key)
    return core.Affinity(
        pod_anti_affinity=core.PodAffinity(
            required_during_scheduling_ignored_during_execution=(term,)
        )
    )


def _spread(role: str, how: str) -> tuple[core.TopologySpreadConstraint, ...]:
    return (
        core.TopologySpreadConstraint(
            max_skew=1,
            topology_key="zone",
            when_unsatisfiable=how,
            label_selector=_selected(role),
        ),
    )


@st.composite
def templates(draw: st.DrawFn, role: str, *, plain: bool = False) -> Template:
    """Pods of a role; one in three has a constraint beyond its requests, none if ``plain``: then no
    constraint depends on other pods or compares nodes.
    """
    special: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        preferences: list[dict[str, Any]] = [
            {"node_selector": {"zone": "a"}},
            {"tolerations": (_TOLERATION,)},
            {"priority": 7},
        ]
        if not plain:
            preferences += [
                {"host_port": 80},
                {"affinity": _preferred_zone()},
                {"affinity": _anti_affinity(role, "zone")},
                {"affinity": _anti_affinity(role, "kubernetes.io/hostname")},
                {"spread": _spread(role, "DoNotSchedule")},
                {"spread": _spread(role, "ScheduleAnyway")},
            ]
        special = draw(st.sampled_from(preferences))
    cpu, memory = draw(
        st.sampled_from(
            (("1", "1Gi"), ("2", "1Gi"), ("500m", "3Gi"), ("1", None), ("3", "2Gi"), (None, None))
        )
    )
    return Template(cpu=cpu, memory=memory, **special)


@st.composite
def nodes(draw: st.DrawFn, name: str, *, plain: bool = False) -> core.Node:
    """A node of a few cores."""
    is_usual = draw(st.integers(0, 3)) > 0
    taints = ((), (_TAINT,)) if plain else ((), (_TAINT,), (_SOFT_TAINT,))
    return builders.make_node(
        name,
        cpu=draw(st.sampled_from(("4", "8", "3"))),
        memory=draw(st.sampled_from(("8Gi", "16Gi", "5Gi"))),
        pods=110 if is_usual else draw(st.sampled_from((2, 5))),
        labels={
            "kubernetes.io/hostname": name,
            **draw(st.sampled_from(({"zone": "a"}, {"zone": "b"}, {}))),
        },
        taints=() if is_usual else draw(st.sampled_from(taints)),
        unschedulable=not is_usual and draw(st.booleans()),
    )


@st.composite
def gangs(
    draw: st.DrawFn, name: str, queues: Sequence[str], node_names: Sequence[str], plain: bool
) -> list[meta.Object]:
    """A PodGroup and its pods, of one role or two; in one of four, some pods run already."""
    roles = draw(st.sampled_from((("w",), ("w",), ("a", "b"))))
    sizes = [draw(st.integers(1, 6)) for _ in roles]
    total = sum(sizes)
    minimums = dict(zip(roles, sizes, strict=True))
    running = draw(st.integers(0, total)) if draw(st.integers(0, 3)) == 0 else 0
    made = [draw(templates(f"{name}-{role}", plain=plain)) for role in roles]
    pods: list[core.Pod] = []
    for role, template, size in zip(roles, made, sizes, strict=True):
        for at in range(size):
            placed: dict[str, Any] = {}
            if len(pods) < running:
                placed = {"node": draw(st.sampled_from(list(node_names))), "phase": "Running"}
            pods.append(template.pod(f"{name}-{role}-{at}", name, f"{name}-{role}", **placed))
    wanted: units.Amounts = {}
    for pod in pods:
        wanted = units.add(wanted, units.amounts(pod.spec.containers[0].resources.requests or {}))
    least: dict[str, core.Quantity] = {
        "cpu": f"{wanted.get('cpu', 0)}m",
        "memory": wanted.get("memory", 0),
    }
    group = builders.make_pod_group(
        name,
        draw(st.sampled_from((total, total, 1, max(total // 2, 1)))),
        queue=draw(st.sampled_from(list(queues))),
        phase="Running" if running else draw(st.sampled_from(("Pending", "Inqueue", ""))),
        min_resources=draw(st.sampled_from((None, least))),
        min_task_member=(
            {f"{name}-{role}": fewest for role, fewest in minimums.items()}
            if draw(st.integers(0, 3)) == 0
            else None
        ),
        priority_class=draw(st.sampled_from(("", HIGH, LOW))),
        created=builders.NOON + timedelta(seconds=draw(st.integers(0, 1))),
    )
    return [group, *pods]


@st.composite
def queues(draw: st.DrawFn, name: str) -> scheduling.Queue:
    """A queue with a weight; one in three has a limit."""
    queue = builders.make_queue(name, weight=draw(st.integers(1, 3)))
    capability = draw(st.sampled_from((None, None, {"cpu": "5"})))
    spec = msgspec.structs.replace(queue.spec, capability=capability)
    return msgspec.structs.replace(queue, spec=spec)


@st.composite
def clusters(draw: st.DrawFn, *, plain: bool = False) -> list[meta.Object]:
    """Objects of a cluster: up to six nodes, three queues and six gangs.

    ``plain``: without ports, affinity between pods, spread, preferences and PreferNoSchedule
    taints.
    """
    node_names = [f"n{at}" for at in range(draw(st.integers(1, 6)))]
    queue_names = [f"q{at}" for at in range(draw(st.integers(1, 3)))]
    objs: list[meta.Object] = [
        builders.make_priority_class(HIGH, 10),
        builders.make_priority_class(LOW, 1),
    ]
    objs += [draw(queues(name)) for name in queue_names]
    objs += [draw(nodes(name, plain=plain)) for name in node_names]
    for at in range(draw(st.integers(1, 6))):
        objs += draw(gangs(f"g{at}", queue_names, node_names, plain))
    return objs
