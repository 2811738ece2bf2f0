"""Collections over REST, complete or in pages."""

from typing import Annotated

import msgspec
from litestar.params import QueryParameter

from stromboli.shared.cluster import port as cluster_port

MAX_ITEMS = 5000
"""Maximum number of objects in a page: some tens of megabytes."""
Limit = Annotated[
    int | None,
    QueryParameter(
        name="limit",
        ge=1,
        le=MAX_ITEMS,
        description="Maximum objects per page; without it, all objects.",
    ),
]
Continue = Annotated[
    str | None,
    QueryParameter(
        name="continue",
        max_length=4096,
        description="The `continue` of the previous page. Over all pages, an object that exists "
        "throughout is returned exactly once. 410: too old, begin again.",
    ),
]


class Items(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A collection as of a version. ``continue`` is the token of the next page; absent on the
    last.
    """

    items: list[msgspec.Raw]
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


async def list_page(
    cluster: cluster_port.Cluster,
    kind: cluster_port.AnyKind,
    namespace: str = "",
    labels: dict[str, str] | None = None,
    limit: int | None = None,
    after: str | None = None,
) -> Items:
    """All objects, or a page of them. Raises ExternalError."""
    if limit is None and not after:
        whole = await cluster.list(kind, namespace, labels)
        return Items([msgspec.Raw(item) for item in whole.items], whole.resource_version)
    page = await cluster.page(kind, namespace, labels, limit=limit or MAX_ITEMS, after=after or "")
    return Items([msgspec.Raw(item) for item in page.items], page.resource_version, page.next)
