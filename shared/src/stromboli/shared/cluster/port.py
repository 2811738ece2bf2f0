"""The port to the Kubernetes API.

Objects cross it as JSON bytes; ``kind.decode`` reads them. Promises of every adapter, held by the
contract suite ``stromboli.testkit.contracts.cluster``: optimistic concurrency by resourceVersion,
uid preconditions, watches that resume, owner references, finalizers, status and binding
subresources, admission webhooks, structural defaults and schemas of our CRDs.

Every method raises the tree of ``stromboli.shared.errors`` and nothing else of the client's.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import msgspec

from stromboli.shared.api.kinds import Kind

AnyKind = Kind[Any]


class Listing(msgspec.Struct, frozen=True):
    """A whole collection as of ``resource_version``."""

    items: tuple[bytes, ...]
    resource_version: str


class Page(msgspec.Struct, frozen=True):
    """A part of a collection as of ``resource_version``. ``next`` asks for what follows; empty on
    the last one."""

    items: tuple[bytes, ...]
    resource_version: str
    next: str = ""


class WatchEvent(msgspec.Struct, frozen=True):
    """A change. For BOOKMARK the object has nothing but a resourceVersion."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: bytes


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What of a container's output is wanted.

    ``container`` may be empty if the pod has one alone. ``follow``: go on until it ends.
    ``previous``: what it wrote before its last restart. ``tail_lines``: its last lines only.
    """

    container: str = ""
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None


class Cluster(Protocol):
    """A connection to one cluster, as one account. Use as an async context manager."""

    async def __aenter__(self) -> Self:
        """Open the connection; does not call the server yet."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""

    async def get(self, kind: AnyKind, namespace: str, name: str) -> bytes:
        """One object. Raises NotFoundError."""

    async def list(
        self, kind: AnyKind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        """All objects (of a namespace, with these labels) in one consistent picture."""

    async def page(
        self,
        kind: AnyKind,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        *,
        limit: int,
        after: str = "",
    ) -> Page:
        """At most ``limit`` objects in the order of their names, behind the page whose ``next``
        is ``after``.

        Over all pages, whatever changes between them, an object that stays is seen exactly once.
        Raises ExpiredError for an ``after`` that is too old (begin again), InvalidError for one
        that is none.
        """

    def watch(self, kind: AnyKind, resource_version: str) -> AsyncGenerator[WatchEvent, None]:
        """Changes after ``resource_version``, with bookmarks.

        Ends when the server closes the stream (watch again from the last version seen); raises
        ExpiredError when the version is no longer kept (list again).
        """

    async def create(self, kind: AnyKind, namespace: str, body: bytes) -> bytes:
        """Create; returns the object as stored. Raises AlreadyExistsError, InvalidError."""

    async def patch(
        self,
        kind: AnyKind,
        namespace: str,
        name: str,
        patch: bytes,
        *,
        patch_type: Literal["json", "merge"],
        subresource: Literal["", "status"] = "",
    ) -> bytes:
        """Change an object by a JSON patch (RFC 6902) or merge patch (RFC 7386).

        Raises ConflictError when a ``test`` of a JSON patch fails or a resourceVersion in the
        patch is not the current one; NotFoundError; InvalidError.
        """

    async def delete(
        self,
        kind: AnyKind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
        propagation: Literal["", "Background", "Foreground", "Orphan"] = "",
    ) -> None:
        """Delete if the uid is this one. Raises NotFoundError, ConflictError (another uid)."""

    async def bind(
        self, namespace: str, pod: str, *, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """Bind a pod by its binding subresource; the annotations come to stand on the pod.

        Raises ConflictError if the pod has a node already, is another (uid) or is going away;
        NotFoundError.
        """

    def logs(
        self, namespace: str, pod: str, query: LogQuery
    ) -> AbstractAsyncContextManager[AsyncGenerator[bytes, None]]:
        """Chunks of what a container wrote to stdout and stderr, in the order it came.

        Entering raises NotFoundError, or InvalidError for a container that is not there, not named
        among several, or not started yet; of a pod without a node the log may be empty instead.
        Chunks just end when the connection breaks.
        """

    async def is_reachable(self) -> bool:
        """Whether the server answers now; for readiness, never raises."""
