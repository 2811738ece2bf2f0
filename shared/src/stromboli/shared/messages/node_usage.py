"""The measured load of a node's disks and network interfaces.

The agent on the node measures it, and the monitor publishes it on ``cluster.usage``. A load that
could not be measured is None: *unknown*, never zero.
"""

import msgspec

from stromboli.shared.decoding import Instant
from stromboli.shared.messages.base import Message, register


class DeviceLoad(Message, frozen=True, kw_only=True):
    """The load of a node's disks, or of its network interfaces.

    ``busiest``: the device with the highest load. ``percent``: its load, 0 to 100: of a disk the
    share of time with requests in progress (``%util`` of iostat), of an interface the busier
    direction against the speed of its link. ``in_bytes_per_s``: read or received by all devices
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
    noticeably. ``silent_since``: the last report of the node's agent, if that is too old to rely on
    this; None while it reports.
    """

    node: str
    observed_at: Instant
    usage: NodeLoad = msgspec.field(default_factory=NodeLoad)
    silent_since: Instant | None = None
