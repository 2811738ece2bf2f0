"""What is measured on a node: the load of its disks and network interfaces, and what its pods use.

The agent on the node measures it; the monitor publishes loads on ``cluster.usage``, and the usage
of pods on ``cluster.podusage``. A value that could not be measured is None: *unknown*, never zero.
"""

import msgspec

from stromboli.shared.decoding import Instant
from stromboli.shared.messages.base import Message, register


class DeviceLoad(Message, frozen=True, kw_only=True):
    """The load of a node's disks, or of its network interfaces.

    ``busiest``: the device with the highest load. ``percent``: its load, 0 to 100: for a disk, the
    share of time with requests in progress (``%util`` of iostat); for an interface, the busier
    direction relative to the speed of its link. ``in_bytes_per_s``: read or received by all devices
    together; ``out_bytes_per_s``: written or sent.
    """

    busiest: str
    percent: int
    in_bytes_per_s: int = 0
    out_bytes_per_s: int = 0


class NodeLoad(Message, frozen=True, kw_only=True):
    """Loads of a node, averaged over ``window_s`` seconds. ``disk``, ``network``: None while they
    are unknown."""

    window_s: int = 0
    disk: DeviceLoad | None = None
    network: DeviceLoad | None = None


@register("stromboli.cluster.usage_observed.v1")
class UsageObserved(Message, frozen=True, kw_only=True):
    """The loads of a node as of ``observed_at`` (key: the node). Published when they change
    noticeably. ``silent_since``: the time of the last report of the node's agent, if that is too
    old to rely on; None while the agent reports.
    """

    node: str
    observed_at: Instant
    usage: NodeLoad = msgspec.field(default_factory=NodeLoad)
    silent_since: Instant | None = None


class PodUsage(Message, frozen=True, kw_only=True):
    """What a pod has used so far, all its containers and their restarts together.

    ``counter``: identifies the counter of CPU time. A pod has another counter, which begins at
    zero, after its node has restarted; the CPU time of the pod is the sum of all its counters.
    ``cpu_ms``: the CPU time on that counter, in milliseconds. ``max_memory_bytes``: the highest
    measured memory of all processes together, without page cache that can be reclaimed. ``gpu_ms``:
    the time in which the pod's GPUs were busy, added up over GPUs, since the agent started;
    ``max_gpu_memory_bytes``: the highest measured memory of its GPUs. Both are None without whole
    GPUs that the agent can measure.
    """

    pod_uid: str
    counter: str
    cpu_ms: int
    max_memory_bytes: int
    gpu_ms: int | None = None
    max_gpu_memory_bytes: int | None = None


class PodUsageReport(Message, frozen=True, kw_only=True):
    """An agent's report to the monitor. ``sampler``: identifies this run of the agent, in which
    GPU times begin at zero. ``unknown_pods``: the names (namespace/name) of pods whose uids the
    agent requests."""

    sampler: str
    pods: tuple[PodUsage, ...] = ()
    unknown_pods: tuple[str, ...] = ()


class PodUids(Message, frozen=True, kw_only=True):
    """The monitor's answer: name (namespace/name) -> uid of the pods that exist."""

    uids: dict[str, str] = msgspec.field(default_factory=dict)


@register("stromboli.cluster.pod_usage_measured.v1")
class PodUsageMeasured(Message, frozen=True, kw_only=True):
    """What some pods of a node have used (key: the node). ``at``: when the monitor received it.
    Records contain a pod at growing intervals while it runs, and once after its end with its last
    values. The values of all records of a pod are combined by maximum for each counter.
    ``sampler``: see ``PodUsageReport``."""

    node: str
    at: Instant
    sampler: str
    pods: tuple[PodUsage, ...] = ()
