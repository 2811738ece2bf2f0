"""Hypothesis strategies: clusters that several queues share, flat or as a tree, under pressure.

Unlike in ``session_clusters``, running pods always fit: no node is overcommitted initially. Amounts
are small whole numbers, so that limits are reached exactly in many examples.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import msgspec
from hypothesis import strategies as st

from stromboli.shared import keys
from stromboli.shared.api import core, meta, scheduling
from stromboli.testkit import builders

GPU = "nvidia.com/gpu"
HIGH, MIDDLE, LOW = "high", "middle", "low"
NOW = builders.NOON + timedelta(hours=1)
ROOT = "root"

Amounts = Mapping[str, int]
"""Amounts in whole CPUs, GiB of memory and GPUs."""
SIZES: Sequence[Amounts] = (
    {"cpu": 1},
    {"cpu": 1, "memory": 1},
    {"cpu": 2, "memory": 1},
    {"cpu": 3, "memory": 2},
    {"cpu": 1, "memory": 4},
    {"cpu": 1, GPU: 1},
    {},
)


class SharedCluster(msgspec.Struct, frozen=True):
    """Objects of a cluster. ``is_tree``: queues form a hierarchy."""

    nodes: tuple[core.Node, ...]
    queues: tuple[scheduling.Queue, ...]
    pod_groups: tuple[scheduling.PodGroup, ...]
    pods: tuple[core.Pod, ...]
    is_tree: bool

    def __repr__(self) -> str:
        return "\n".join(["", *(_summary(each) for each in self.objects[3:])])

    @property
    def priority_classes(self) -> tuple[core.PriorityClass, ...]:
        """The priority classes high, middle and low."""
        values = {HIGH: 100, MIDDLE: 50, LOW: 10}
        return tuple(builders.make_priority_class(name, value) for name, value in values.items())

    @property
    def objects(self) -> list[meta.Object]:
        """All objects."""
        return [
            *self.priority_classes,
            *self.nodes,
            *self.queues,
            *self.pod_groups,
            *self.pods,
        ]


def quantities(amounts: Amounts) -> dict[str, core.Quantity]:
    """Amounts as quantities of a manifest."""
    return {name: f"{amount}Gi" if name == "memory" else amount for name, amount in amounts.items()}


def _summary(each: meta.Object) -> str:
    """The fields in which generated objects differ, on one line."""
    name = each.metadata.name
    match each:
        case core.Node():
            return f"node {name} {each.status.allocatable}"
        case scheduling.Queue():
            said = msgspec.json.encode(each.spec).decode()
            return f"queue {name} {said}"
        case scheduling.PodGroup():
            said = msgspec.json.encode(each.spec).decode()
            return f"job {name} {each.status.phase} {said}"
        case core.Pod():
            requested = each.spec.containers[0].resources.requests
            notes = sorted((each.metadata.annotations or {}).values())
            age = (each.metadata.creation_timestamp or builders.NOON) - builders.NOON
            return f"pod {name} {notes} {requested} on {each.spec.node_name or '-'} +{age}"
    return name


@st.composite
def shared_clusters(draw: st.DrawFn, *, tree: bool = False) -> SharedCluster:
    """Up to four nodes, four queues with jobs, and six jobs that run, wait or both."""
    room = {
        f"n{at}": dict(
            draw(
                st.sampled_from(
                    (
                        {"cpu": 4, "memory": 8, "pods": 20},
                        {"cpu": 8, "memory": 8, "pods": 20, GPU: 2},
                        {"cpu": 2, "memory": 4, "pods": 20},
                        {"cpu": 6, "memory": 16, "pods": 3},
                    )
                )
            )
        )
        for at in range(draw(st.integers(1, 4)))
    }
    nodes = tuple(
        builders.make_node(
            name,
            cpu=amounts["cpu"],
            memory=f"{amounts['memory']}Gi",
            pods=amounts["pods"],
            extra={GPU: amounts[GPU]} if GPU in amounts else None,
        )
        for name, amounts in room.items()
    )
    queues = draw(_trees() if tree else _flat())
    above = {queue.spec.parent for queue in queues}
    leaves = [each.metadata.name for each in queues if each.metadata.name not in {*above, ROOT}]
    groups: list[scheduling.PodGroup] = []
    pods: list[core.Pod] = []
    for at in range(draw(st.integers(1, 6))):
        group, members = draw(_jobs(f"j{at}", leaves, room))
        groups.append(group)
        pods += members
    return SharedCluster(nodes, queues, tuple(groups), tuple(pods), tree)


@st.composite
def _limits(draw: st.DrawFn, *, most: int = 10) -> Amounts | None:
    if draw(st.booleans()):
        return None
    names = draw(st.sampled_from((("cpu",), ("cpu", "memory"), ("cpu", GPU), (GPU,))))
    return {name: draw(st.integers(0, most)) for name in names}


@st.composite
def _queue(draw: st.DrawFn, name: str, parent: str = "") -> scheduling.Queue:
    queue = builders.make_queue(name, weight=draw(st.integers(1, 3)))
    capability = draw(_limits())
    deserved = draw(_limits(most=6))
    guarantee = draw(_limits(most=2))
    if capability is not None and guarantee is not None:
        # A guarantee above the capability could not be met.
        capability = {
            name: max(amount, guarantee.get(name, 0)) for name, amount in capability.items()
        }
    spec = msgspec.structs.replace(
        queue.spec,
        parent=parent,
        priority=draw(st.sampled_from((0, 0, 0, 5))),
        capability=quantities(capability) if capability is not None else None,
        deserved=quantities(deserved) if deserved is not None else None,
        guarantee=scheduling.Guarantee(
            resource=quantities(guarantee) if guarantee is not None else None
        ),
        reclaimable=draw(st.sampled_from((None, None, True, False))),
    )
    return msgspec.structs.replace(queue, spec=spec)


@st.composite
def _flat(draw: st.DrawFn) -> tuple[scheduling.Queue, ...]:
    return tuple(draw(_queue(f"q{at}")) for at in range(draw(st.integers(1, 4))))


@st.composite
def _trees(draw: st.DrawFn) -> tuple[scheduling.Queue, ...]:
    queues = [builders.make_queue(ROOT)]
    for branch in range(draw(st.integers(1, 2))):
        queues.append(draw(_queue(f"b{branch}", ROOT)))
        queues += [
            draw(_queue(f"q{branch}{leaf}", f"b{branch}"))
            for leaf in range(draw(st.integers(1, 2)))
        ]
    return tuple(queues)


@st.composite
def _jobs(
    draw: st.DrawFn, name: str, queues: Sequence[str], room: Mapping[str, dict[str, int]]
) -> tuple[scheduling.PodGroup, list[core.Pod]]:
    """A job whose first pods run, in some examples, where there is room. Reduces ``room``."""
    size = draw(st.sampled_from(SIZES))
    count = draw(st.integers(1, 5))
    wants_running = draw(st.sampled_from((0, 0, count, count, 1)))
    preemptable = draw(st.sampled_from(("", "", "", "false")))
    created = builders.NOON + timedelta(minutes=draw(st.integers(0, 3)))
    pods: list[core.Pod] = []
    running = 0
    for at in range(count):
        node = _first_fit(size, room) if running < wants_running else ""
        running += bool(node)
        pods.append(
            builders.make_pod(
                f"{name}-{at}",
                name,
                cpu=size.get("cpu"),
                memory=f"{size['memory']}Gi" if "memory" in size else None,
                extra={GPU: size[GPU]} if GPU in size else None,
                node=node,
                phase="Running" if node else "Pending",
                created=created,
                annotations={keys.PREEMPTABLE: preemptable} if preemptable else None,
            )
        )
    least = draw(st.sampled_from((1, count, max(1, count - 1))))
    group = builders.make_pod_group(
        name,
        # A running gang has at least its minimum.
        min(least, running) if running else least,
        queue=draw(st.sampled_from(list(queues))),
        phase="Running" if running else draw(st.sampled_from(("Inqueue", "Pending"))),
        min_resources=draw(st.sampled_from((None, quantities(_times(least, size))))),
        priority_class=draw(st.sampled_from((HIGH, MIDDLE, LOW))),
        created=created,
    )
    return group, pods


def _times(count: int, size: Amounts) -> Amounts:
    return {name: count * amount for name, amount in size.items()}


def _first_fit(size: Amounts, room: Mapping[str, dict[str, int]]) -> str:
    wanted = {**size, "pods": 1}
    for name, left in room.items():
        if all(left.get(each, 0) >= amount for each, amount in wanted.items()):
            for each, amount in wanted.items():
                left[each] -= amount
            return name
    return ""


def after_decisions(
    shared_cluster: SharedCluster,
    binds: Mapping[str, str],
    evictions: Iterable[str],
    phases: Mapping[str, str],
    at: int,
) -> SharedCluster:
    """The cluster after the decisions are executed: bound pods run, evicted pods are pending again
    under their names, PodGroups have the decided phases. ``at``: the number of the round.
    """
    gone = set(evictions)
    pods = []
    for pod in shared_cluster.pods:
        key = pod.metadata.key
        if key in gone:
            metadata = msgspec.structs.replace(pod.metadata, uid=f"{pod.metadata.uid}+{at}")
            spec = msgspec.structs.replace(pod.spec, node_name="")
            status = msgspec.structs.replace(pod.status, phase="Pending")
            pods.append(core.Pod(metadata=metadata, spec=spec, status=status))
        elif key in binds:
            spec = msgspec.structs.replace(pod.spec, node_name=binds[key])
            status = msgspec.structs.replace(pod.status, phase="Running")
            pods.append(msgspec.structs.replace(pod, spec=spec, status=status))
        else:
            pods.append(pod)
    groups = tuple(
        msgspec.structs.replace(
            group,
            status=msgspec.structs.replace(group.status, phase=phases[group.metadata.key]),
        )
        for group in shared_cluster.pod_groups
    )
    return msgspec.structs.replace(shared_cluster, pods=tuple(pods), pod_groups=groups)
