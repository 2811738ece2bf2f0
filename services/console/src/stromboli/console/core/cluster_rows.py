"""Queues, nodes and the holders of their resources, as rows of pages. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from stromboli.console.core import amounts, queue_trees
from stromboli.console.core.job_rows import GroupRow
from stromboli.shared import device_annotations, gpu_types, keys
from stromboli.shared.api import core, scheduling
from stromboli.shared.formats.units import Amounts

MOST_HOLDERS = 50
"""Holders of a node or resource that are listed; the rest is counted."""
_OVER = ("Succeeded", "Failed")
NEVER_FITS = "can never fit"
"""The beginning of the message of a PodGroup that no change of other jobs can start."""
REASONS: Mapping[str, str] = {
    "NotEnoughResources": "not enough free resources",
    "NotEnoughPodsOfTask": "too few pods of a task",
    "NotEnoughPods": "too few of its pods exist",
    "NoReason": "no reason reported",
}
"""Reason of a PodGroup's condition -> text."""


class PodRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that has not ended: its job (empty if it has none), its node (empty while it is
    pending), what it requests, and its devices. ``gpus``: requested GPUs, in thousandths."""

    key: str
    namespace: str
    name: str
    job: str
    queue: str
    node: str
    phase: str
    requests: Amounts
    gpus: int
    devices: str = ""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or a pod without a job, that holds resources. ``gpus`` in thousandths."""

    namespace: str
    name: str
    is_job: bool
    queue: str
    pods: int
    gpus: int
    nodes: tuple[str, ...]
    devices: tuple[str, ...] = ()


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a Node object that pages show. ``state`` is Ready, NotReady or Cordoned;
    ``problems``: conditions and taints; ``labels``: HyperNodes may select the node by them."""

    name: str
    state: str
    problems: tuple[str, ...]
    allocatable: Amounts
    gpu_type: str = ""
    labels: Mapping[str, str] = {}


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node with its use and its holders; ``state`` and ``problems`` as in ``NodeFacts``. GPUs are
    in thousandths."""

    name: str
    state: str
    problems: tuple[str, ...]
    pods: int
    gauges: tuple[amounts.Gauge, ...]
    has_gpus: bool
    free_gpus: int
    holders: tuple[Holder, ...]
    gpu_type: str = ""
    all_gpus: int = 0


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in its tree: ``depth`` 0 is the top level. Jobs are counted by PodGroup."""

    name: str
    depth: int
    state: str
    weight: int
    running: int
    pending: int
    gauges: tuple[amounts.Gauge, ...]


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The whole cluster: nodes, pods, and the use of each resource."""

    nodes: int
    ready: int
    running: int
    pending: int
    gauges: tuple[amounts.Gauge, ...]


def pod_row(pod: core.Pod) -> PodRow | None:
    """A pod as a row; None for one that has ended, which holds nothing."""
    if pod.status.phase in _OVER:
        return None
    note = pod.metadata.annotation
    requests = amounts.requests(pod.spec)
    return PodRow(
        key=pod.metadata.key,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        job=note(keys.JOB_NAME) or "",
        queue=note(keys.QUEUE_NAME) or "",
        node=pod.spec.node_name,
        phase=pod.status.phase or "Pending",
        requests=requests,
        gpus=amounts.gpus(requests),
        devices=device_annotations.format_assignments(
            device_annotations.assigned_devices(pod.metadata.annotations)
        ),
    )


def node_facts(node: core.Node) -> NodeFacts:
    """The fields of a Node object that pages show."""
    pressures = [
        it.reason or it.type
        for it in node.status.conditions
        if it.type != "Ready" and it.status == "True"
    ]
    return NodeFacts(
        name=node.metadata.name,
        state=_state(node),
        problems=(*pressures, *(f"{it.key}:{it.effect}" for it in node.spec.taints)),
        allocatable=amounts.read(node.status.allocatable),
        gpu_type=gpu_types.of_node(node),
        labels=node.metadata.labels or {},
    )


def holders(pods: Iterable[PodRow]) -> list[Holder]:
    """The jobs with bound pods, and bound pods without a job; those with most GPUs first."""
    pod_rows: dict[tuple[str, str, bool], list[PodRow]] = {}
    for pod in pods:
        if pod.node:
            key = (pod.namespace, pod.job or pod.name, bool(pod.job))
            pod_rows.setdefault(key, []).append(pod)
    all_holders = [_holder(key, own) for key, own in pod_rows.items()]
    return sorted(all_holders, key=lambda it: (-it.gpus, -it.pods, it.namespace, it.name))


def gpu_holders(pods: Iterable[PodRow], most: int = 0) -> list[Holder]:
    """The jobs and pods that hold GPUs, those with most GPUs first; at most ``most``, 0 for all."""
    ranked_holders = holders(pod for pod in pods if pod.gpus)
    return ranked_holders[:most] if most else ranked_holders


def _holder(key: tuple[str, str, bool], own: list[PodRow]) -> Holder:
    namespace, name, is_job = key
    return Holder(
        namespace=namespace,
        name=name,
        is_job=is_job,
        queue=own[0].queue,
        pods=len(own),
        gpus=sum(pod.gpus for pod in own),
        nodes=tuple(sorted({pod.node for pod in own})),
        devices=tuple(pod.devices for pod in own if pod.devices),
    )


def node_rows(nodes: Iterable[NodeFacts], pods: Iterable[PodRow]) -> list[NodeRow]:
    """The nodes by name, each with what is free and the holders of the rest."""
    on: dict[str, list[PodRow]] = {}
    for pod in pods:
        if pod.node:
            on.setdefault(pod.node, []).append(pod)
    return [
        _node_row(node, on.get(node.name, [])) for node in sorted(nodes, key=lambda each: each.name)
    ]


def totals(nodes: Iterable[NodeFacts], pods: Iterable[PodRow]) -> Totals:
    """The use of the whole cluster, including nodes that are not ready: their pods count, too."""
    known = list(nodes)
    bound, pending = [], 0
    for pod in pods:
        if pod.node:
            bound.append(pod.requests)
        else:
            pending += 1
    return Totals(
        nodes=len(known),
        ready=sum(node.state == "Ready" for node in known),
        running=len(bound),
        pending=pending,
        gauges=_gauges(_sum(bound), _sum(node.allocatable for node in known)),
    )


def queue_rows(
    queues: Iterable[scheduling.Queue], groups: Iterable[GroupRow] | None
) -> list[QueueRow]:
    """The queues as a tree in preorder. ``groups``: the PodGroups of all namespaces; None where
    they may not be read, so that the counts of the queues' own status are used."""
    known = queue_trees.by_name(queues)
    active: Counter[tuple[str, bool]] | None = None
    if groups is not None:
        active = Counter(
            (it.queue, it.phase == "Running") for it in groups if it.phase != "Completed"
        )
    return [_queue_row(known[name], depth, active) for name, depth in queue_trees.preorder(known)]


def pending_by_reason(groups: Iterable[GroupRow]) -> list[tuple[str, int]]:
    """Why PodGroups are pending, the most frequent reason first."""
    counts = Counter(
        _reason(group) for group in groups if group.phase in ("Pending", "Inqueue", "Unknown")
    )
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def _reason(group: GroupRow) -> str:
    if group.message.startswith(NEVER_FITS):
        return "can never fit into the cluster or its queue"
    if not group.reason:
        return "about to start" if group.phase == "Inqueue" else "not considered yet"
    return REASONS.get(group.reason, group.reason)


def _node_row(node: NodeFacts, pods: list[PodRow]) -> NodeRow:
    whole, used = node.allocatable, _sum(pod.requests for pod in pods)
    return NodeRow(
        name=node.name,
        state=node.state,
        problems=node.problems,
        pods=len(pods),
        gauges=_gauges(used, whole),
        has_gpus=amounts.gpus(whole) > 0,
        free_gpus=amounts.gpus(whole) - amounts.gpus(used),
        holders=tuple(holders(pods)),
        gpu_type=node.gpu_type,
        all_gpus=amounts.gpus(whole),
    )


def _sum(parts: Iterable[Amounts]) -> Amounts:
    """The sum of amounts, in place: a new dict for each of 100,000 pods takes three times as
    long."""
    whole: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            whole[name] = whole.get(name, 0) + amount
    return whole


def _state(node: core.Node) -> str:
    ready = next((it for it in node.status.conditions if it.type == "Ready"), None)
    if ready is None or ready.status != "True":
        return "NotReady"
    return "Cordoned" if node.spec.unschedulable else "Ready"


def _gauges(used: Mapping[str, int], whole: Mapping[str, int]) -> tuple[amounts.Gauge, ...]:
    resource_names = {name for name in whole if amounts.is_gpu(name)} | set(amounts.FIRST)
    return tuple(
        amounts.gauge(name, used.get(name, 0), whole.get(name))
        for name in amounts.order(resource_names)
        if whole.get(name) or used.get(name)
    )


def _queue_row(
    queue: scheduling.Queue, depth: int, active: Counter[tuple[str, bool]] | None
) -> QueueRow:
    name, spec, status = queue.metadata.name, queue.spec, queue.status
    used = amounts.read(status.allocated)
    capability, deserved = amounts.read(spec.capability), amounts.read(spec.deserved)
    guarantee = amounts.read(spec.guarantee.resource)
    named = {*used, *capability, *deserved, *guarantee}
    resource_names = {it for it in named if it in amounts.FIRST or amounts.is_gpu(it)}
    return QueueRow(
        name=name,
        depth=depth,
        state=status.state or "Open",
        weight=spec.weight,
        running=status.running if active is None else active[name, True],
        pending=status.pending + status.inqueue if active is None else active[name, False],
        gauges=tuple(
            amounts.gauge(
                it, used.get(it, 0), capability.get(it), deserved.get(it), guarantee.get(it)
            )
            for it in amounts.order(resource_names)
        ),
    )
