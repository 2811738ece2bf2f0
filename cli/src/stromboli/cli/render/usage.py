"""Resource usage by queue, job and node, from the scheduler's input. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from stromboli.cli.render import explanation_view, output
from stromboli.shared import decoding, keys
from stromboli.shared.api import core, kinds, scheduling, topology
from stromboli.shared.formats import counts, units
from stromboli.shared.formats.units import Amounts
from stromboli.shared.jobspec import quota

GPU = "nvidia.com/gpu"
RESOURCES = ("cpu", "memory", GPU)
"""The resources of the columns CPU, MEMORY and GPU."""
BAR = 10
_DONE = ("Succeeded", "Failed")
_JOB_PHASES = {"Running": "Running", "Unknown": "Running"}
"""Phase of a PodGroup -> that of its job, as ``strom job list`` shows it; the others are Pending.
The scheduler's input has no jobs. A PodGroup is Unknown while some pods of a gang are lost."""
ROOT = "root"
"""The root of the queue hierarchy."""


class ClusterObjects(msgspec.Struct, frozen=True):
    """The objects of the scheduler's input that usage depends on."""

    nodes: tuple[core.Node, ...] = ()
    queues: tuple[scheduling.Queue, ...] = ()
    groups: tuple[scheduling.PodGroup, ...] = ()
    pods: tuple[core.Pod, ...] = ()
    hyper_nodes: tuple[topology.HyperNode, ...] = ()


class PodUsage(msgspec.Struct):
    """The numbers of bound and of pending pods, and the requests of the bound pods."""

    running: int = 0
    waiting: int = 0
    held: Amounts = {}

    def take(self, pod: core.Pod) -> None:
        """Count a pod, and add its requests if it is bound."""
        if not pod.spec.node_name:
            self.waiting += 1
            return
        self.running += 1
        self.held = units.add(self.held, quota.requests(pod.spec))


class _Named(msgspec.Struct, rename="camel"):
    kind: str


def read(items: Iterable[bytes | msgspec.Raw]) -> ClusterObjects:
    """The objects of these manifests; other kinds are ignored."""
    items_by_kind: dict[str, list[bytes | msgspec.Raw]] = {}
    for item in items:
        items_by_kind.setdefault(decoding.from_json(item, _Named).kind, []).append(item)
    return ClusterObjects(
        nodes=tuple(map(kinds.NODES.decode, items_by_kind.get("Node", ()))),
        queues=tuple(map(kinds.QUEUES.decode, items_by_kind.get("Queue", ()))),
        groups=tuple(map(kinds.POD_GROUPS.decode, items_by_kind.get("PodGroup", ()))),
        pods=tuple(map(kinds.PODS.decode, items_by_kind.get("Pod", ()))),
        hyper_nodes=tuple(map(kinds.HYPER_NODES.decode, items_by_kind.get("HyperNode", ()))),
    )


def headline(objects: ClusterObjects) -> list[str]:
    """Facts about the whole cluster: its nodes and pods, and its utilisation by resource."""
    total: Amounts = {}
    for node in objects.nodes:
        total = units.add(total, units.amounts(node.status.allocatable or {}))
    use = PodUsage()
    for pod in active_pods(objects):
        use.take(pod)
    bars = [
        f"{label(name)} {bar(use.held.get(name, 0), total[name])}"
        for name in RESOURCES
        if total.get(name)
    ]
    nodes, running = counts.counted(len(objects.nodes), "node"), counts.counted(use.running, "pod")
    return [f"{nodes}, {running} running, {use.waiting} pending", *bars]


def queues(objects: ClusterObjects) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows by queue. A queue includes its children.

    Amounts are ``used/limit(cap)`` with the capability of the queue, ``used/limit(des)`` with its
    deserved amount where it has no capability, and ``used`` without either.
    """
    specs = {queue.metadata.name: queue.spec for queue in objects.queues}
    of_group = {group.metadata.key: group.spec.queue for group in objects.groups}
    uses: dict[str, PodUsage] = {name: PodUsage() for name in specs}
    for pod in active_pods(objects):
        for queue in _ancestors(of_group.get(_group(pod)), specs):
            uses.setdefault(queue, PodUsage()).take(pod)
    phases: dict[tuple[str, bool], int] = {}
    for group in objects.groups:
        if group.status.phase == "Completed":
            continue
        for queue in _ancestors(group.spec.queue, specs):
            state = (queue, group.status.phase == "Running")
            phases[state] = phases.get(state, 0) + 1
    rows = []
    for name, use in sorted(uses.items()):
        limits = _queue_limits(specs.get(name, scheduling.QueueSpec()))
        rows.append(
            (
                name,
                str(phases.get((name, True), 0)),
                str(phases.get((name, False), 0)),
                str(use.running),
                str(use.waiting),
                *(_queue_cell(resource, use.held, limits) for resource in RESOURCES),
            )
        )
    return (
        "QUEUE",
        "RUNNING JOBS",
        "PENDING JOBS",
        "RUNNING PODS",
        "PENDING PODS",
        "CPU",
        "MEMORY",
        "GPU",
    ), rows


def jobs(objects: ClusterObjects, now: datetime) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows by gang, the largest first."""
    uses = {group.metadata.key: PodUsage() for group in objects.groups}
    for pod in active_pods(objects):
        if (key := _group(pod)) in uses:
            uses[key].take(pod)
    groups = {group.metadata.key: group for group in objects.groups}
    rows = []
    for key, use in sorted(uses.items(), key=lambda pair: (_size(pair[1]), pair[0])):
        group = groups[key]
        if group.status.phase == "Completed":
            continue
        rows.append(
            (
                explanation_view.job_name(key),
                group.spec.queue,
                _JOB_PHASES.get(group.status.phase, "Pending"),
                str(use.running),
                str(use.waiting),
                *(_amount_cell(resource, use.held, {}) for resource in RESOURCES),
                output.age(group.metadata.creation_timestamp, now),
            )
        )
    return (
        ("JOB", "QUEUE", "PHASE", "RUNNING PODS", "PENDING PODS", "CPU", "MEMORY", "GPU", "AGE"),
        rows,
    )


def nodes(objects: ClusterObjects) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows by node."""
    uses = by_node(active_pods(objects))
    rows = []
    for node in sorted(objects.nodes, key=lambda each: each.metadata.name):
        use = uses.get(node.metadata.name, PodUsage())
        most = units.amounts(node.status.allocatable or {})
        resource_cells = (_amount_cell(resource, use.held, most) for resource in RESOURCES)
        largest = max(
            (use.held.get(name, 0) / most[name] for name in RESOURCES if most.get(name)), default=0
        )
        rows.append(
            (
                node.metadata.name,
                str(use.running),
                *resource_cells,
                bar(round(1000 * largest), 1000),
            )
        )
    return ("NODE", "PODS", "CPU", "MEMORY", "GPU", "HIGHEST USE"), rows


def by_node(pods: Iterable[core.Pod]) -> dict[str, PodUsage]:
    """Node -> its pods, of pods that have not ended. O(pods)."""
    uses: dict[str, PodUsage] = {}
    for pod in pods:
        if pod.spec.node_name:
            uses.setdefault(pod.spec.node_name, PodUsage()).take(pod)
    return uses


def free_cells(node: core.Node, requested: Amounts | None) -> tuple[str, ...]:
    """What no pod of a node requests, for each of ``RESOURCES``; empty for a resource that the node
    does not have. ``requested``: the requests of its pods, None if they are unknown."""
    most = units.amounts(node.status.allocatable or {})
    return tuple(
        explanation_view.format_amount(name, max(most[name] - requested.get(name, 0), 0))
        if requested is not None and name in most
        else ""
        for name in RESOURCES
    )


def bar(part: int, whole: int) -> str:
    """A bar for a part of a whole: ``[####------]  42%``."""
    share = part / whole if whole else 0.0
    full = min(round(share * BAR), BAR)
    return f"[{'#' * full}{'-' * (BAR - full)}] {share:4.0%}"


def active_pods(objects: ClusterObjects) -> Iterable[core.Pod]:
    """Pods that have not ended."""
    return filter(is_active, objects.pods)


def is_active(pod: core.Pod) -> bool:
    """Whether the pod has not ended, so that its requests count."""
    return pod.status.phase not in _DONE


def _group(pod: core.Pod) -> str:
    name = pod.metadata.annotation(keys.GROUP_NAME)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def _amount_cell(resource: str, usage: Mapping[str, int], most: Mapping[str, int]) -> str:
    used = explanation_view.format_amount(resource, usage.get(resource, 0))
    return (
        f"{used}/{explanation_view.format_amount(resource, most[resource])}"
        if resource in most
        else used
    )


def _ancestors(queue: str | None, specs: Mapping[str, scheduling.QueueSpec]) -> list[str]:
    """A queue and its ancestors up to the root. A cycle of parents ends the list."""
    chain: list[str] = []
    while queue and queue not in chain:
        chain.append(queue)
        if queue == ROOT or queue not in specs:
            break
        queue = specs[queue].parent or ROOT
    return [name for name in chain if name in specs or name == chain[0]]


def _queue_limits(spec: scheduling.QueueSpec) -> dict[str, tuple[int, str]]:
    """Resource -> its limit and the label of that limit."""
    deserved = {name: (value, "des") for name, value in units.amounts(spec.deserved or {}).items()}
    capability = {
        name: (value, "cap") for name, value in units.amounts(spec.capability or {}).items()
    }
    return {**deserved, **capability}


def _queue_cell(
    resource: str, usage: Mapping[str, int], limits: Mapping[str, tuple[int, str]]
) -> str:
    used = explanation_view.format_amount(resource, usage.get(resource, 0))
    if resource not in limits:
        return used
    limit, label_of_limit = limits[resource]
    return f"{used}/{explanation_view.format_amount(resource, limit)}({label_of_limit})"


def _size(use: PodUsage) -> tuple[int, ...]:
    return tuple(-use.held.get(name, 0) for name in (GPU, "cpu", "memory"))


def label(resource: str) -> str:
    """The name of a resource in text."""
    return {"cpu": "CPU", "memory": "memory", GPU: "GPU"}[resource]
