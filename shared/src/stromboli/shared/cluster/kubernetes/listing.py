"""A paginated list that shows one consistent version of a collection.

The continue token of an API server pins the version of the first page, so all pages show the
collection as of that version. Once the version is compacted, the server answers 410 in the middle
of the list; a partial list is unusable, so the list begins again without pages, which cannot
expire.
"""

import msgspec

from stromboli.shared import decoding
from stromboli.shared.cluster import port
from stromboli.shared.cluster.port import Listing
from stromboli.shared.formats import nesting

PAGE_ITEMS = 500
"""Objects per page, as in client-go: a few megabytes, decoded in milliseconds."""


class _ListMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion")
    next_page: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_DECODER = decoding.decoder_of(_Page)


def page(body: bytes) -> port.Page:
    """Decode one page. Raises msgspec.DecodeError."""
    list_meta, items = _read(body)
    return port.Page(tuple(items), list_meta.resource_version, list_meta.next_page)


def _read(body: bytes) -> tuple[_ListMeta, list[bytes]]:
    try:
        list_page = _DECODER.decode(body)
    except RecursionError:
        list_page = _DECODER.decode(nesting.outer(body, levels=2))
        return list_page.metadata, nesting.parts(body, level=3)
    # A copy of each item: a Raw would keep its whole page alive.
    return list_page.metadata, [bytes(item) for item in list_page.items or ()]


class Pages:
    """The pages of one list received so far."""

    def __init__(self) -> None:
        self._items: list[bytes] = []
        self._version = ""
        self._next = ""
        self._is_paged = True

    def query(self) -> dict[str, str]:
        """The query parameters of the next page."""
        if not self._is_paged:
            return {}
        query = {"limit": str(PAGE_ITEMS)}
        return query | {"continue": self._next} if self._next else query

    def add(self, body: bytes) -> Listing | None:
        """Add a page; returns the whole list after the last one. Raises msgspec.DecodeError."""
        list_meta, items = _read(body)
        self._version = self._version or list_meta.resource_version
        self._items.extend(items)
        self._next = list_meta.next_page
        return None if self._next else Listing(tuple(self._items), self._version)

    def expired(self) -> bool:
        """Handle a 410: begin again without pages. False if the list already has no pages."""
        if not self._is_paged:
            return False
        self._items, self._version, self._next, self._is_paged = [], "", "", False
        return True
