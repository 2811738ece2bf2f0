"""The port to the Kubernetes API.

Objects are passed as JSON bytes; ``kind.decode`` decodes them. Every adapter provides these
guarantees, which the contract suite ``stromboli.testkit.contracts.cluster`` tests: optimistic
concurrency by resourceVersion, uid preconditions, watches that resume, owner references,
finalizers, status and binding subresources, admission webhooks, structural defaults and schemas of
our CRDs.

Every method raises the errors of ``stromboli.shared.errors`` and no error of the client library.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
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
    """A part of a collection as of ``resource_version``. ``next`` is the token of the next page;
    empty on the last one.
    """

    items: tuple[bytes, ...]
    resource_version: str
    next: str = ""


class ServerTime(msgspec.Struct, frozen=True):
    """The server's time in one of its responses, in whole seconds. ``arrived_s``: the time of the
    event loop at which the response arrived, in seconds."""

    at: datetime
    arrived_s: float


class WatchEvent(msgspec.Struct, frozen=True):
    """A change. A BOOKMARK's object has only a resourceVersion."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: bytes


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects a part of a container's output.

    ``container`` may be empty if the pod has only one. ``follow``: continue until the container
    ends. ``previous``: the output before its last restart. ``tail_lines``: only its last lines.
    ``timestamps``: each line begins with the time at which it arrived (RFC 3339 in UTC) and a
    space. ``since``: only lines from this time on. ``uid``: the pod must have this uid. A deleted
    pod is found only if its node keeps the output of deleted pods, which kubelets do not do;
    otherwise NotFoundError is raised.
    """

    container: str = ""
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    uid: str = ""
    timestamps: bool = False
    since: datetime | None = None


class Cluster(Protocol):
    """A connection to one cluster, as one account. Use as an async context manager."""

    async def __aenter__(self) -> Self:
        """Open the connection, without a request to the server."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""

    async def get(self, kind: AnyKind, namespace: str, name: str) -> bytes:
        """One object. Raises NotFoundError."""

    async def list(
        self, kind: AnyKind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        """All objects (of a namespace, with these labels) as of one resourceVersion."""

    async def page(
        self,
        kind: AnyKind,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        *,
        limit: int,
        after: str = "",
    ) -> Page:
        """At most ``limit`` objects in the order of their names, after the page whose ``next`` is
        ``after``.

        Over all pages, an object that exists during the whole time is returned exactly once, even
        if others change. Raises ExpiredError for an ``after`` that is too old (begin again),
        InvalidError for an invalid one.
        """

    def watch(self, kind: AnyKind, resource_version: str) -> AsyncGenerator[WatchEvent, None]:
        """Changes after ``resource_version``, with bookmarks.

        Ends when the server closes the stream (watch again from the last version seen); raises
        ExpiredError when the version is no longer kept (list again).
        """

    async def create(
        self, kind: AnyKind, namespace: str, body: bytes, *, dry_run: bool = False
    ) -> bytes:
        """Create; returns the object as stored. Raises AlreadyExistsError, InvalidError.

        ``dry_run``: apply defaults, webhooks and validation as for a create, and store nothing.
        """

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
        """Delete an object, if it has this uid. Raises NotFoundError, ConflictError (another
        uid)."""

    async def bind(
        self, namespace: str, pod: str, *, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """Bind a pod by its binding subresource, and set the annotations on the pod.

        Raises ConflictError if the pod already has a node, has another uid or is terminating;
        NotFoundError.
        """

    async def evict(
        self, namespace: str, pod: str, *, uid: str, grace_seconds: int | None = None
    ) -> None:
        """Delete a pod by its eviction subresource, if its PodDisruptionBudget allows that now.

        The pod gets the condition ``DisruptionTarget`` with the reason ``EvictionByEvictionAPI``.
        Budgets protect running pods only. ``grace_seconds``: None for the pod's own. Raises
        DisruptionBudgetError, NotFoundError, ConflictError (another uid).
        """

    def logs(
        self, namespace: str, pod: str, query: LogQuery
    ) -> AbstractAsyncContextManager[AsyncGenerator[bytes, None]]:
        """Chunks of a container's stdout and stderr, in the order of arrival.

        Entering raises NotFoundError, or InvalidError for a container that does not exist, is not
        named although the pod has several, or has not started yet; the log of a pod without a node
        may be empty instead. The stream ends when the connection breaks.
        """

    def server_time(self) -> ServerTime | None:
        """The time in the last response to any request of this connection; None before the first
        response, and if that has no valid time."""

    async def is_reachable(self) -> bool:
        """Whether the server answers now; for readiness, never raises."""
