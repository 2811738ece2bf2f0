"""Nodes as rows of a list, and bound pods that their kubelet has not acknowledged. Pure.

A kubelet acknowledges a pod by writing ``status.startTime``: the pod is *taken*. A kubelet renews
the lease of its node every 10 s; Kubernetes treats the node as lost 50 s after the last renewal by
default (``--node-monitor-grace-period``). Source:
https://kubernetes.io/docs/concepts/architecture/nodes/.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from stromboli.cli.render import explanation_view, output, pod_status, usage
from stromboli.shared.api import coordination, core, kinds
from stromboli.shared.data_cache import policy
from stromboli.shared.formats import counts, units
from stromboli.shared.jobspec import quota
from stromboli.shared.messages import node_usage

HEADERS = (
    "NAME", "STATUS", "LEASE", "CPU", "MEMORY", "GPU", "PODS",
    "FREE CPU", "FREE MEMORY", "FREE GPU", "AGE",
)  # fmt: skip
WIDE_HEADERS = ("TAINTS", "LABELS")
CONDITION_HEADERS = ("TYPE", "STATUS", "REASON", "AGE", "MESSAGE")
POD_HEADERS = ("NAMESPACE", "POD", "STATUS", "REQUESTS", "AGE")
COLUMNS = (*usage.RESOURCES, "pods")
"""The allocatable resources that are columns of a list."""
TAKEN_WITHIN = timedelta(seconds=5)
"""A kubelet on a healthy node acknowledges a pod within this time."""
LEASE_LIVES = timedelta(seconds=40)
"""The duration of a kubelet's lease."""


class Stuck(msgspec.Struct, frozen=True):
    """Pods of a job on a node whose kubelet has not taken them, or does not renew its lease.

    ``untaken``: pods that it has not taken, the first of them bound at ``bound_at``. ``taken``:
    pods that it has taken and that have not ended. ``renewed_at`` is None for a node without lease.
    """

    node: str
    untaken: int
    taken: int
    bound_at: datetime | None
    renewed_at: datetime | None


def stuck_pods(
    pods: Sequence[pod_status.Pod], leases: Mapping[str, coordination.Lease | None], now: datetime
) -> list[Stuck]:
    """The nodes with a pod that was not taken in time or with a kubelet that is not live, by name.

    ``leases``: node -> its lease, None for a node without one; the lease of an absent node is
    unknown, so only its untaken pods count.
    """
    stucks = []
    for node in nodes_of(pods):
        here = [pod for pod in pods if pod.spec.node_name == node and not pod_status.is_over(pod)]
        untaken = [pod for pod in here if is_untaken(pod)]
        bound = [at for pod in untaken if (at := bound_at(pod)) is not None]
        is_late = bool(untaken) and (not bound or now - min(bound) >= TAKEN_WITHIN)
        lease = leases.get(node)
        renewed = None if lease is None else renewed_at(lease)
        is_lost = bool(here) and renewed is not None and now - renewed > LEASE_LIVES
        if is_late or is_lost:
            first = min(bound, default=None)
            count = len(untaken)
            stucks.append(Stuck(node, count, len(here) - count, first, renewed))
    return stucks


def nodes_of(pods: Sequence[pod_status.Pod]) -> list[str]:
    """The nodes that pods are bound to: first those with untaken pods, then by name."""
    waiting = {pod.spec.node_name for pod in pods if is_untaken(pod)}
    every = {
        pod.spec.node_name for pod in pods if pod.spec.node_name and not pod_status.is_over(pod)
    }
    return sorted(every, key=lambda name: (name not in waiting, name))


def is_untaken(pod: pod_status.Pod) -> bool:
    """Whether a pod is bound and its kubelet has not reported a status."""
    return (
        bool(pod.spec.node_name)
        and pod.status.phase in ("", "Pending")
        and pod.status.start_time is None
        and not pod.status.container_statuses
        and pod.metadata.deletion_timestamp is None
    )


def bound_at(pod: pod_status.Pod) -> datetime | None:
    """When a pod was bound to its node."""
    return next(
        (
            one.last_transition_time
            for one in pod.status.conditions
            if one.type == "PodScheduled" and one.status == "True"
        ),
        pod.metadata.creation_timestamp,
    )


def lines(stuck: Sequence[Stuck], now: datetime) -> list[str]:
    """A line per node: the number of pods that its kubelet has not acknowledged, or else of the
    pods on a node that does not respond; and the age of the node's lease."""
    return [_line(one, now) for one in stuck]


def _line(one: Stuck, now: datetime) -> str:
    lease = (
        f"node's lease renewed {_seconds(one.renewed_at, now)} ago"
        if one.renewed_at is not None
        else "the node has no lease"
    )
    if one.untaken:
        pods = counts.counted(one.untaken, "pod")
        since = f" since {_seconds(one.bound_at, now)}" if one.bound_at else ""
        return f"{pods} bound to node {one.node}{since}, not acknowledged by its kubelet; {lease}"
    pods = counts.counted(one.taken, "pod")
    return f"{pods} on node {one.node}, whose kubelet does not respond; {lease}"


def renewed_at(lease: coordination.Lease) -> datetime | None:
    """When a lease was renewed, by its holder's clock; None if that cannot be read."""
    try:
        parsed_time = datetime.fromisoformat(lease.spec.renew_time or "")
    except ValueError:
        return None
    return parsed_time if parsed_time.tzinfo is not None else None


def row(
    node: core.Node,
    lease: coordination.Lease | None,
    now: datetime,
    requested: units.Amounts | None = None,
) -> tuple[str, ...]:
    """A node as a row under ``HEADERS``. ``requested``: by its pods, None if unknown."""
    most = node.status.allocatable or {}
    return (
        node.metadata.name,
        status(node),
        output.age(None if lease is None else renewed_at(lease), now),
        *(str(most.get(name, "")) for name in COLUMNS),
        *usage.free_cells(node, requested),
        output.age(node.metadata.creation_timestamp, now),
    )


def wide_cells(node: core.Node) -> tuple[str, ...]:
    """The further cells of a node's row, under ``WIDE_HEADERS``."""
    return (_taints(node), _labels(node))


def status(node: core.Node) -> str:
    """``Ready``, ``NotReady`` or ``Unknown``, and ``SchedulingDisabled``, as kubectl prints it."""
    ready = next((one.status for one in node.status.conditions if one.type == "Ready"), "Unknown")
    text = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    return f"{text},SchedulingDisabled" if node.spec.unschedulable else text


def facts(
    node: core.Node,
    lease: coordination.Lease | None,
    now: datetime,
    observed: node_usage.UsageObserved | None = None,
) -> list[str]:
    """Spec, status and measured loads of a node, a fact per line, without empty ones."""
    renewed = None if lease is None else renewed_at(lease)
    amounts = (node.status.allocatable or {}).items()
    text_by_label = {
        "node": node.metadata.name,
        "status": status(node),
        "lease": f"renewed {_seconds(renewed, now)} ago" if renewed else "none",
        "allocatable": ", ".join(f"{name}={amount}" for name, amount in amounts),
        "disk": _load(observed, "disk", ("read", "written"), now),
        "network": _load(observed, "network", ("received", "sent"), now),
        "taints": _taints(node),
        "labels": _labels(node),
        "age": output.age(node.metadata.creation_timestamp, now),
    }
    return output.facts(*((label, text) for label, text in text_by_label.items() if text))


def conditions(node: core.Node, now: datetime) -> list[tuple[str, ...]]:
    """The conditions of a node under ``CONDITION_HEADERS``."""
    return [
        (it.type, it.status, it.reason, output.age(it.last_transition_time, now), it.message)
        for it in node.status.conditions
    ]


def pods(raws: Iterable[bytes | msgspec.Raw], now: datetime) -> list[tuple[str, ...]]:
    """The pods among these that have not ended, under ``POD_HEADERS``, by namespace and name."""
    rows = []
    for raw in raws:
        pod = pod_status.decode(raw)
        if not pod_status.is_over(pod):
            rows.append(
                (
                    pod.metadata.namespace,
                    pod.metadata.name,
                    pod_status.status(pod),
                    explanation_view.format_amounts(quota.requests(kinds.PODS.decode(raw).spec)),
                    output.age(pod.metadata.creation_timestamp, now),
                )
            )
    return sorted(rows)


def _load(
    observed: node_usage.UsageObserved | None, of: str, ways: tuple[str, str], now: datetime
) -> str:
    """The load of disks or network when it last changed noticeably; empty if it is unknown."""
    load: node_usage.DeviceLoad | None = None if observed is None else getattr(observed.usage, of)
    if observed is None or load is None:
        return ""
    at = "as of" if observed.silent_since is None else "the node agent's last report:"
    rates = zip((load.in_bytes_per_s, load.out_bytes_per_s), ways, strict=True)
    moved = ", ".join(f"{policy.text_of_bytes(rate)}/s {way}" for rate, way in rates)
    since = output.age(observed.silent_since or observed.observed_at, now)
    return f"{load.busiest} {load.percent} % busy, {moved} ({at} {since} ago)"


def _taints(node: core.Node) -> str:
    return ",".join(
        f"{taint.key}{'=' * bool(taint.value)}{taint.value}:{taint.effect}"
        for taint in node.spec.taints
    )


def _labels(node: core.Node) -> str:
    return ",".join(f"{name}={value}" for name, value in (node.metadata.labels or {}).items())


def _seconds(since: datetime | None, now: datetime) -> str:
    return "0 s" if since is None else f"{max(round((now - since).total_seconds()), 0)} s"
