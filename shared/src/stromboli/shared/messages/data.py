"""Copies of data sets on nodes: what each node's cache contains, and what it should contain.

The cache of a node reports ``DataObserved`` to the monitor, which publishes it on ``cluster.data``.
The scheduler publishes ``DataWanted`` on ``scheduling.data``, and the monitor's endpoint returns it
to the node's cache. A data set is identified by its content key, see
``stromboli.shared.jobspec.data_sets.content_key``.
"""

import msgspec

from stromboli.shared.api.views.data_copies import CopyState
from stromboli.shared.decoding import Instant
from stromboli.shared.messages.base import Message, register


class DataCopy(Message, frozen=True, kw_only=True):
    """A data set on a node, or on its way there.

    ``bytes``: the size of the content, 0 while it is unknown. ``fetched_bytes``: how many of them
    are on the node. ``digest``: the digest of the content of a complete copy, as measured; before
    that the requested one, or empty. ``last_used_at``: when the last pod that used it ended, or
    when it was fetched; None for a copy that is not complete. ``in_use``: a pod uses it.
    """

    key: str
    uri: str
    digest: str = ""
    bytes: int = 0
    state: CopyState
    fetched_bytes: int = 0
    last_used_at: Instant | None = None
    in_use: bool = False
    reason: str = ""


@register("stromboli.cluster.data_observed.v1")
class DataObserved(Message, frozen=True, kw_only=True):
    """The content of a node's cache as of ``observed_at`` (key: the node). Published when it
    changes; the progress of a fetch is published in steps.

    ``capacity_bytes``: the maximum size of the cache. ``used_bytes``: the bytes that it holds,
    including partial copies. ``copies``: in the order of their keys. ``read_bytes_per_s``: scheme
    of a URI -> the rate at which this node lately read from such origins. ``silent_since``: the
    time of the cache's last report, if that is too old to rely on; None while the cache reports.
    """

    node: str
    observed_at: Instant
    capacity_bytes: int = 0
    used_bytes: int = 0
    copies: tuple[DataCopy, ...] = ()
    read_bytes_per_s: dict[str, int] = msgspec.field(default_factory=dict)
    silent_since: Instant | None = None


class WantedCopy(Message, frozen=True, kw_only=True):
    """A data set that a node should have.

    ``bytes``: the size that the job states, 0 if unknown. ``priority``: copies with a higher value
    are fetched first. ``pinned``: the copy is not evicted, even while no pod uses it. ``reason``:
    why the copy is wanted, as text.
    """

    key: str
    uri: str
    digest: str = ""
    bytes: int = 0
    priority: int = 0
    pinned: bool = False
    reason: str = ""


@register("stromboli.scheduling.data_wanted.v1")
class DataWanted(Message, frozen=True, kw_only=True):
    """All data sets that a node should have (key: the node): of pods placed there until they end,
    and of pending gangs that are to start there. Published when it changes. A copy that is not
    listed may be evicted, but only if its room is needed.
    """

    node: str
    items: tuple[WantedCopy, ...] = ()
