"""Data sets and their copies in the caches of nodes, as the REST API returns them."""

from typing import Literal

import msgspec

from stromboli.shared.decoding import Instant

CopyState = Literal["Waiting", "Fetching", "Complete", "Failed"]
"""``Waiting``: the copy is requested and not started, see ``reason``. ``Fetching``: bytes are being
read. ``Complete``: all bytes are on the node, and their digest was verified if one was
requested. ``Failed``: the last attempt failed; ``reason`` contains the cause and the next attempt.
"""


class NodeCopy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A data set in the cache of a node, or on its way there.

    ``bytes``: the size of the content, 0 while it is unknown; ``fetched_bytes``: how many of them
    are on the node. ``digest``: the measured digest of a complete copy. ``in_use``: a pod uses it.
    ``last_used_at``: when the last pod that used it ended, or when it was fetched. ``reason``: why
    the copy failed or waits. ``observed_at``: the time of the report; ``silent_since``: the time
    of the cache's last report, if that is too old to rely on; null while the cache reports.
    """

    node: str
    state: CopyState
    bytes: int = 0
    fetched_bytes: int = 0
    digest: str = ""
    in_use: bool = False
    last_used_at: Instant | None = None
    reason: str = ""
    observed_at: Instant
    silent_since: Instant | None = None


class DataSetCopies(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A data set and its copies, in the order of their nodes.

    ``key``: the content key, from ``uri`` and the requested digest. ``digest``: the content's
    digest; empty if it is unknown, or if complete copies differ, as they can without a requested
    digest. ``bytes``: the size of the content, 0 if it is unknown.
    """

    key: str
    uri: str
    digest: str = ""
    bytes: int = 0
    nodes: tuple[NodeCopy, ...] = ()


class DataSetPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Data sets in the order of their keys. ``continue`` is the token of the next page; empty on
    the last.
    """

    items: tuple[DataSetCopies, ...]
    continue_: str = msgspec.field(name="continue", default="")
