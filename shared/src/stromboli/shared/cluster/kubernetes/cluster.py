"""``KubernetesCluster``: implements the port with HTTP requests."""

import contextlib
import copy
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from datetime import UTC
from types import TracebackType
from typing import Any, Literal, Self, get_args

import msgspec

from stromboli.shared import decoding, errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import listing, status
from stromboli.shared.cluster.kubernetes.connection import Connection
from stromboli.shared.cluster.kubernetes.line_splitter import LineSplitter
from stromboli.shared.cluster.kubernetes.listing import Pages
from stromboli.shared.cluster.kubernetes.settings import KubernetesSettings
from stromboli.shared.formats import nesting

_JSON = "application/json"
_PATCH = {"json": "application/json-patch+json", "merge": "application/merge-patch+json"}
_ENCODER = msgspec.json.Encoder()
_LOG_FLAGS = ("follow", "previous", "timestamps")
_AT_ONCE: frozenset[port.AnyKind] = frozenset({kinds.LEASES})
"""Kinds whose requests bypass the limit of concurrent requests, since a lease that is renewed late
is lost.
"""

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
_EVENT_TYPES: frozenset[str] = frozenset(get_args(EventType))


class _Line(msgspec.Struct, frozen=True):
    """A line of a watch stream."""

    type: str
    object: msgspec.Raw


_LINE = decoding.decoder_of(_Line)


class KubernetesCluster:
    """Adapter to an API server. ``spread``: the random source of jitter."""

    def __init__(self, settings: KubernetesSettings, spread: random.Random | None = None) -> None:
        self._settings = settings
        self._spread = spread or random.Random()  # noqa: S311 - not for secrets
        self._connection = Connection(settings, self._spread)

    async def __aenter__(self) -> Self:
        """Read the configuration. Raises ConfigurationError if it is invalid."""
        await self._connection.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self._connection.close()

    def impersonating(self, user: str, groups: Sequence[str]) -> "KubernetesCluster":
        """The same cluster, with requests that impersonate this user in RBAC, admission and audit
        logs. Valid while this cluster is open. Raises PermanentError for a name that no header can
        carry.
        """
        kubernetes_cluster = copy.copy(self)
        kubernetes_cluster._connection = self._connection.impersonating(user, groups)
        return kubernetes_cluster

    async def get(self, kind: port.AnyKind, namespace: str, name: str) -> bytes:
        """Read one object."""
        what = _what("get", kind, namespace, name)
        at_once = kind in _AT_ONCE
        return await self._connection.read(kind.path(namespace, name), what, at_once=at_once)

    async def list(
        self, kind: port.AnyKind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> port.Listing:
        """Read all objects, in pages. Items lack apiVersion and kind."""
        what = _what("list", kind, namespace)
        chosen = _chosen(labels)
        pages = Pages()
        while True:
            try:
                body = await self._connection.read(
                    kind.path(namespace), what, chosen | pages.query()
                )
                whole = pages.add(body)
            except errors.ExpiredError:
                if not pages.expired():
                    raise
            except msgspec.DecodeError as error:
                raise errors.TransientError(what, f"invalid response: {error}") from None
            else:
                if whole is not None:
                    return whole

    async def page(
        self,
        kind: port.AnyKind,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        *,
        limit: int,
        after: str = "",
    ) -> port.Page:
        """One page of a list. All pages show the collection as of the first page."""
        what = _what("list", kind, namespace)
        query = _chosen(labels) | {"limit": str(limit)} | ({"continue": after} if after else {})
        body = await self._connection.read(kind.path(namespace), what, query)
        try:
            return listing.page(body)
        except msgspec.DecodeError as error:
            raise errors.TransientError(what, f"invalid response: {error}") from None

    async def watch(
        self, kind: port.AnyKind, resource_version: str
    ) -> AsyncGenerator[port.WatchEvent, None]:
        """Stream the changes after ``resource_version``."""
        what = _what("watch", kind)
        lasts_s = self._settings.watch_timeout_s * self._spread.uniform(1, 2)
        query = {
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(lasts_s)),
        }
        lines = LineSplitter()
        async with self._connection.stream(kind.path(), what, query) as chunks:
            async for chunk in chunks:
                for line in lines.feed(chunk):
                    yield read_event(what, line)

    async def create(
        self, kind: port.AnyKind, namespace: str, body: bytes, *, dry_run: bool = False
    ) -> bytes:
        """Create an object; ``body`` has apiVersion and kind."""
        what = _what("create", kind, namespace, kinds.name_of(body))
        query = {"dryRun": "All"} if dry_run else None
        return await self._connection.write(
            "POST",
            kind.path(namespace),
            what,
            body,
            _JSON,
            query=query,
            at_once=kind in _AT_ONCE,
        )

    async def patch(
        self,
        kind: port.AnyKind,
        namespace: str,
        name: str,
        patch: bytes,
        *,
        patch_type: Literal["json", "merge"],
        subresource: Literal["", "status"] = "",
    ) -> bytes:
        """Change an object by a JSON patch or merge patch."""
        what = _what("patch", kind, namespace, name)
        path = kind.path(namespace, name, subresource)
        return await self._connection.write(
            "PATCH", path, what, patch, _PATCH[patch_type], at_once=kind in _AT_ONCE
        )

    async def delete(
        self,
        kind: port.AnyKind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
        propagation: Literal["", "Background", "Foreground", "Orphan"] = "",
    ) -> None:
        """Delete an object; finalizers or a grace period may delay the removal."""
        what = _what("delete", kind, namespace, name)
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        body = _ENCODER.encode(options)
        await self._connection.write("DELETE", kind.path(namespace, name), what, body, _JSON)

    async def bind(
        self, namespace: str, pod: str, *, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """Bind a pod by its binding subresource."""
        what = f"bind Pod {namespace}/{pod} to {node}"
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod,
                "namespace": namespace,
                "uid": uid,
                "annotations": dict(annotations),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = kinds.PODS.path(namespace, pod, "binding")
        await self._connection.write("POST", path, what, _ENCODER.encode(binding), _JSON)

    async def evict(
        self, namespace: str, pod: str, *, uid: str, grace_seconds: int | None = None
    ) -> None:
        """Delete a pod by its eviction subresource."""
        what = f"evict Pod {namespace}/{pod}"
        options: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": options,
        }
        path = kinds.PODS.path(namespace, pod, "eviction")
        await self._connection.write("POST", path, what, _ENCODER.encode(eviction), _JSON)

    @contextlib.asynccontextmanager
    async def logs(
        self, namespace: str, pod: str, query: port.LogQuery
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """The output of a container, which the API server reads from the kubelet."""
        what = f"read the log of Pod {namespace}/{pod}"
        if query.uid and query.uid != await self._uid_of(namespace, pod):
            reason = "the pod is deleted, and its kubelet has dropped its log"
            raise errors.NotFoundError(what, reason)
        requested = {"container": query.container} if query.container else {}
        requested |= {name: "true" for name in _LOG_FLAGS if getattr(query, name)}
        if query.tail_lines is not None:
            requested["tailLines"] = str(query.tail_lines)
        if query.since is not None:
            requested["sinceTime"] = query.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        opened = self._connection.stream(
            kinds.PODS.path(namespace, pod, "log"),
            what,
            requested,
            may_be_silent=True,
        )
        async with opened as chunks:
            yield chunks

    async def _uid_of(self, namespace: str, pod: str) -> str:
        """The uid of the pod of this name; empty if there is none."""
        try:
            return kinds.metadata_of(await self.get(kinds.PODS, namespace, pod)).uid
        except errors.NotFoundError:
            return ""

    def server_time(self) -> port.ServerTime | None:
        """The ``Date`` of the last response."""
        return self._connection.server_time()

    async def is_reachable(self) -> bool:
        """Whether ``/readyz`` is answered within two seconds, with a status below 500."""
        return await self._connection.answers("/readyz")


def read_event(what: str, line: bytes) -> port.WatchEvent:
    """The event in one line of a watch. Raises the error that an ERROR event contains, such as
    ExpiredError, and TransientError for a line that is not an event.
    """
    try:
        read = _LINE.decode(line)
    except RecursionError:
        kind, *objects = _LINE.decode(nesting.outer(line, levels=1)).type, *nesting.parts(line, 2)
        read = _Line(kind, msgspec.Raw(objects[0]))
    except msgspec.DecodeError as error:
        raise errors.TransientError(what, f"invalid watch event: {error}") from None
    if read.type not in _EVENT_TYPES:
        raise status.translate_event(what, bytes(read.object))
    return port.WatchEvent(read.type, bytes(read.object))  # type: ignore[arg-type]  # checked above


def _chosen(labels: Mapping[str, str] | None) -> dict[str, str]:
    selector = ",".join(f"{label}={value}" for label, value in (labels or {}).items())
    return {"labelSelector": selector} if selector else {}


def _what(verb: str, kind: port.AnyKind, namespace: str = "", name: str = "") -> str:
    place = "/".join(part for part in (namespace, name) if part)
    return f"{verb} {kind.kind} {place}".rstrip()
