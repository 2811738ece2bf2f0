"""Who uses how much: queues, jobs and nodes, from what the scheduler sees. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from stromboli.cli.commands import explain
from stromboli.cli.render import output
from stromboli.shared import keys
from stromboli.shared.api import core, kinds, scheduling, topology
from stromboli.shared.formats import units
from stromboli.shared.formats.units import Amounts

GPU = "nvidia.com/gpu"
RESOURCES = ("cpu", "memory", GPU)
"""What everybody looks at; the columns CPU, MEMORY and GPU."""
BAR = 10
_DONE = ("Succeeded", "Failed")


class ClusterObjects(msgspec.Struct, frozen=True):
    """A cluster as the scheduler sees it."""

    nodes: tuple[core.Node, ...] = ()
    queues: tuple[scheduling.Queue, ...] = ()
    groups: tuple[scheduling.PodGroup, ...] = ()
    pods: tuple[core.Pod, ...] = ()
    hyper_nodes: tuple[topology.HyperNode, ...] = ()


class PodUsage(msgspec.Struct):
    """Pods that hold something, those that wait, and what is held."""

    running: int = 0
    waiting: int = 0
    held: Amounts = {}

    def take(self, pod: core.Pod) -> None:
        """Count a pod."""
        if not pod.spec.node_name:
            self.waiting += 1
            return
        self.running += 1
        self.held = units.add(self.held, request(pod))


class _Named(msgspec.Struct, rename="camel"):
    kind: str


def read(items: Iterable[bytes | msgspec.Raw]) -> ClusterObjects:
    """The picture of these manifests; kinds that do not matter are passed over."""
    found: dict[str, list[bytes | msgspec.Raw]] = {}
    for item in items:
        found.setdefault(msgspec.json.decode(item, type=_Named).kind, []).append(item)
    return ClusterObjects(
        nodes=tuple(map(kinds.NODES.decode, found.get("Node", ()))),
        queues=tuple(map(kinds.QUEUES.decode, found.get("Queue", ()))),
        groups=tuple(map(kinds.POD_GROUPS.decode, found.get("PodGroup", ()))),
        pods=tuple(map(kinds.PODS.decode, found.get("Pod", ()))),
        hyper_nodes=tuple(map(kinds.HYPER_NODES.decode, found.get("HyperNode", ()))),
    )


def request(pod: core.Pod) -> Amounts:
    """What a pod holds: its containers together, or one that comes before them if that is more."""
    together: Amounts = {}
    for container in pod.spec.containers:
        together = units.add(together, units.amounts(container.resources.requests or {}))
    for container in pod.spec.init_containers:
        own = units.amounts(container.resources.requests or {})
        if container.restart_policy == "Always":
            together = units.add(together, own)
        else:
            together = units.highest(together, own)
    return units.add(together, units.amounts(pod.spec.overhead or {}))


def headline(seen: ClusterObjects) -> list[str]:
    """The whole cluster, a fact each: what there is, and how full it is."""
    total: Amounts = {}
    for node in seen.nodes:
        total = units.add(total, units.amounts(node.status.allocatable or {}))
    use = PodUsage()
    for pod in active_pods(seen):
        use.take(pod)
    shown = [
        f"{label(name)} {bar(use.held.get(name, 0), total[name])}"
        for name in RESOURCES
        if total.get(name)
    ]
    return [f"{len(seen.nodes)} nodes, {use.running} pods run, {use.waiting} wait", *shown]


def queues(seen: ClusterObjects) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows by queue; amounts as used/most, where there is a most."""
    of_group = {group.metadata.key: group.spec.queue for group in seen.groups}
    uses: dict[str, PodUsage] = {queue.metadata.name: PodUsage() for queue in seen.queues}
    for pod in active_pods(seen):
        queue = of_group.get(_group(pod))
        if queue is not None:
            uses.setdefault(queue, PodUsage()).take(pod)
    phases: dict[tuple[str, bool], int] = {}
    for group in seen.groups:
        state = (group.spec.queue, group.status.phase == "Running")
        if group.status.phase != "Completed":
            phases[state] = phases.get(state, 0) + 1
    specs = {queue.metadata.name: queue for queue in seen.queues}
    rows = []
    for name, use in sorted(uses.items()):
        spec = specs[name].spec if name in specs else scheduling.QueueSpec()
        most = units.amounts(spec.capability or spec.deserved or {})
        rows.append(
            (
                name,
                str(phases.get((name, True), 0)),
                str(phases.get((name, False), 0)),
                str(use.running),
                str(use.waiting),
                *(_amount_cell(resource, use.held, most) for resource in RESOURCES),
            )
        )
    return ("QUEUE", "JOBS", "WAITING", "PODS", "PENDING", "CPU", "MEMORY", "GPU"), rows


def jobs(seen: ClusterObjects, now: datetime) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows by gang, the largest first."""
    uses = {group.metadata.key: PodUsage() for group in seen.groups}
    for pod in active_pods(seen):
        if (key := _group(pod)) in uses:
            uses[key].take(pod)
    groups = {group.metadata.key: group for group in seen.groups}
    rows = []
    for key, use in sorted(uses.items(), key=lambda pair: (_size(pair[1]), pair[0])):
        group = groups[key]
        if group.status.phase == "Completed":
            continue
        rows.append(
            (
                explain.job_name(key),
                group.spec.queue,
                group.status.phase or "Pending",
                str(use.running),
                str(use.waiting),
                *(_amount_cell(resource, use.held, {}) for resource in RESOURCES),
                output.age(group.metadata.creation_timestamp, now),
            )
        )
    return (
        ("JOB", "QUEUE", "PHASE", "PODS", "PENDING", "CPU", "MEMORY", "GPU", "AGE"),
        rows,
    )


def nodes(seen: ClusterObjects) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows by node."""
    uses = {node.metadata.name: PodUsage() for node in seen.nodes}
    for pod in active_pods(seen):
        if pod.spec.node_name in uses:
            uses[pod.spec.node_name].take(pod)
    rows = []
    for node in sorted(seen.nodes, key=lambda each: each.metadata.name):
        use = uses[node.metadata.name]
        most = units.amounts(node.status.allocatable or {})
        held = (_amount_cell(resource, use.held, most) for resource in RESOURCES)
        largest = max(
            (use.held.get(name, 0) / most[name] for name in RESOURCES if most.get(name)), default=0
        )
        rows.append((node.metadata.name, str(use.running), *held, bar(round(1000 * largest), 1000)))
    return ("NODE", "PODS", "CPU", "MEMORY", "GPU", "FULLEST"), rows


def bar(part: int, whole: int) -> str:
    """``[####------]  42%``."""
    share = part / whole if whole else 0.0
    full = min(round(share * BAR), BAR)
    return f"[{'#' * full}{'-' * (BAR - full)}] {share:4.0%}"


def active_pods(seen: ClusterObjects) -> Iterable[core.Pod]:
    """Pods that have not ended."""
    return (pod for pod in seen.pods if pod.status.phase not in _DONE)


def _group(pod: core.Pod) -> str:
    name = pod.metadata.annotation(keys.GROUP_NAME)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def _amount_cell(resource: str, held: Mapping[str, int], most: Mapping[str, int]) -> str:
    used = explain.format_amount(resource, held.get(resource, 0))
    return f"{used}/{explain.format_amount(resource, most[resource])}" if resource in most else used


def _size(use: PodUsage) -> tuple[int, ...]:
    return tuple(-use.held.get(name, 0) for name in (GPU, "cpu", "memory"))


def label(resource: str) -> str:
    """A resource as people say it."""
    return {"cpu": "CPU", "memory": "memory", GPU: "GPU"}[resource]
