"""``EmbeddedCluster``: the operations of the cluster port over ``State``.

``stromboli.shared.cluster.port`` states the contract. Other kinds and verbs of an API server raise
UnsupportedError that names them. All services of a process share one instance, and each uses it as
a context manager; the file is open while at least one is inside.

Acknowledged writes are durable, and reads return durable data only. What a reader publishes in the
log therefore never goes beyond what the cluster still contains after the process was killed.
"""

import asyncio
import contextlib
import functools
import itertools
import random
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar

import msgspec

from stromboli.embedded.cluster import (
    deletion,
    disruption_controller,
    garbage_collector,
    paging,
    patches,
    pod_logs,
    pods,
    quota_controller,
    storage_rules,
    watches,
)
from stromboli.embedded.cluster.admission_reviews import AdmissionReviews
from stromboli.embedded.cluster.state import Key, State, Stored, key_of
from stromboli.embedded.cluster.webhooks import Kubelet, Webhook
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.runtime import runtime

Document = dict[str, Any]
P = ParamSpec("P")
R = TypeVar("R")

_SUFFIXES = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: without vowels they form no words. Kubernetes uses the same."""


_RANDOM = random.Random()  # noqa: S311 - uids are unique, not secret


def new_uid() -> str:
    """Return a random uid (UUID version 4), like those of an API server."""
    # Not uuid4: each call reads random bytes from the system and releases the interpreter's lock.
    return str(uuid.UUID(int=_RANDOM.getrandbits(128), version=4))


def _refuses_durably(change: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Raise a conflict or a missing object only once the state that caused it can be read, as with
    an API server: otherwise a client that reads after a conflict would see the version that it had
    already.
    """

    @functools.wraps(change)
    async def changed(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await change(*args, **kwargs)
        except (errors.ConflictError, errors.NotFoundError):
            cluster = args[0]
            assert isinstance(cluster, EmbeddedCluster)
            await cluster.settled()
            raise

    return changed


class EmbeddedCluster:
    """The embedded cluster.

    ``path``: the SQLite file; ``ids`` generates uids. ``hooks`` and ``kubelets`` (by node name) are
    read on every call and may grow. ``events_kept``: how many changes a watch may lag before it
    expires. ``bookmark_after_s``: idle time after which a watch sends a bookmark.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], datetime] = runtime.utc_now,
        ids: Callable[[], str] = new_uid,
        hooks: Sequence[Webhook] = (),
        *,
        kubelets: Mapping[str, Kubelet] | None = None,
        events_kept: int = 10_000,
        bookmark_after_s: float = 10.0,
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._reviews = AdmissionReviews(hooks, ids)
        self._kubelets = {} if kubelets is None else kubelets
        self._state = State(path, events_kept)
        self._collector = garbage_collector.GarbageCollector(self._state, clock)
        self._quotas = quota_controller.QuotaController(self._state)
        self._budgets = disruption_controller.DisruptionController(self._state)
        self._background: tuple[asyncio.Task[None], ...] = ()
        self._watches = watches.Watches(self._state, bookmark_after_s)
        self._inside = 0
        self._entering = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Open the file. Raises PermanentError if another process or instance has it open."""
        async with self._entering:
            if self._inside == 0:
                await self._state.open()
                self._watches.is_open = True
                self._quotas.begin()
                self._budgets.begin()
                await self._create_initial_objects()
                self._background = (
                    asyncio.create_task(self._collector.run(self)),
                    asyncio.create_task(self._quotas.run(self)),
                    asyncio.create_task(self._budgets.run(self)),
                )
            self._inside += 1
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file when the last user leaves; watches end."""
        async with self._entering:
            self._inside -= 1
            if self._inside == 0 and self._background:
                for task in self._background:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                self._watches.is_open = False
                await self._state.close()

    # --- reading ---------------------------------------------------------------------------

    async def get(self, kind: port.AnyKind, namespace: str, name: str) -> bytes:
        """Return the durable version of an object. Raises NotFoundError."""
        what = _what("get", kind, namespace, name)
        self._check_open(what)
        stored = self._state.get(key_of(_served_kind(kind, what), namespace, name))
        if stored is None:
            raise errors.NotFoundError(what, "not found")
        return stored.raw

    async def list(
        self, kind: port.AnyKind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> port.Listing:
        """Return the durable objects of a kind, sorted by namespace and name."""
        chosen = sorted(self._chosen(kind, namespace, labels))
        return port.Listing(tuple(raw for _, raw in chosen), str(self._state.version))

    async def page(
        self,
        kind: port.AnyKind,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        *,
        limit: int,
        after: str = "",
    ) -> port.Page:
        """Return the objects after the last one of the previous page, in their current state. The
        continue token never expires.
        """
        what = _what("list", kind, namespace)
        behind = paging.position_of(after, what) if after else ("", "")
        self._check_open(what)
        chosen = list(
            itertools.islice(self._behind(kind, what, namespace, labels, behind), limit + 1)
        )
        items = tuple(raw for _, raw in chosen[:limit])
        follows = paging.token_of(chosen[limit - 1][0]) if len(chosen) > limit else ""
        return port.Page(items, str(self._state.version), follows)

    def _behind(
        self,
        kind: port.AnyKind,
        what: str,
        namespace: str,
        labels: Mapping[str, str] | None,
        behind: tuple[str, str],
    ) -> Iterator[tuple[Key, bytes]]:
        """Yield the selected objects after a namespace and name, sorted by both."""
        wanted = (labels or {}).items()
        for key, stored in self._state.after(
            _served_kind(kind, what), *max(behind, (namespace, ""))
        ):
            if namespace and key.namespace != namespace:
                return
            if wanted <= stored.labels.items():
                yield key, stored.raw

    def _chosen(
        self, kind: port.AnyKind, namespace: str, labels: Mapping[str, str] | None
    ) -> Iterator[tuple[Key, bytes]]:
        wanted, what = (labels or {}).items(), _what("list", kind, namespace)
        self._check_open(what)
        entries = self._state.all(_served_kind(kind, what)).items()
        return (
            (key, stored.raw)
            for key, stored in entries
            if (not namespace or key.namespace == namespace) and wanted <= stored.labels.items()
        )

    def watch(
        self, kind: port.AnyKind, resource_version: str
    ) -> AsyncGenerator[port.WatchEvent, None]:
        """Yield changes after ``resource_version``; ends when the cluster is closed."""
        what = _what("watch", kind)
        return self._watches.watch(_served_kind(kind, what), resource_version, what)

    @contextlib.asynccontextmanager
    async def logs(
        self, namespace: str, pod: str, query: port.LogQuery
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Read the output of a container from its node."""
        async with pod_logs.opened(self, self._kubelets, namespace, pod, query) as chunks:
            yield chunks

    def _check_open(self, what: str) -> None:
        """Raise UnavailableError if the cluster is closed: a client that lists again when its watch
        ends would otherwise loop without a pause.
        """
        if not self._watches.is_open:
            raise errors.UnavailableError(what, "the cluster is closed")

    async def settled(self) -> None:
        """Return once every change that was accepted can be read. Raises UnavailableError."""
        await self._state.settled()

    def bookmark(self) -> None:
        """Make every watch send a bookmark now."""
        self._watches.bookmark()

    def server_time(self) -> port.ServerTime | None:
        """Return the present time: each response is immediate."""
        now_s = asyncio.get_running_loop().time()
        return port.ServerTime(self._clock().replace(microsecond=0), now_s)

    async def is_reachable(self) -> bool:
        """Return whether the file is open and writable."""
        try:
            await self._state.settled()
        except errors.ExternalError:
            return False
        return True

    # --- creating --------------------------------------------------------------------------

    @_refuses_durably
    async def create(
        self, kind: port.AnyKind, namespace: str, body: bytes, *, dry_run: bool = False
    ) -> bytes:
        """Create an object: mutating hooks, defaults, validation, validating hooks."""
        what = _what("create", kind, namespace, kinds.name_of(body))
        kind = _served_kind(kind, what)
        document = storage_rules.parse(kind, namespace, body, what)
        if kind.namespaced:
            self._check_namespace(namespace, what)
        document = storage_rules.set_defaults(kind, document)
        document = await self._reviews.mutate(kind, "CREATE", document, None, what)
        document = storage_rules.set_defaults(kind, document)
        metadata = document["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generate(kind, namespace, metadata["generateName"])
        storage_rules.prepare_for_create(kind, document, self._ids(), self._clock())
        self._admit(kind, document, what)
        await self._reviews.validate(kind, "CREATE", document, None, what)
        if dry_run:
            await self._check_addable(kind, document, what)
            return msgspec.json.encode(document)
        return (await self._add(kind, document, what)).raw

    def _admit(self, kind: port.AnyKind, document: Document, what: str) -> None:
        storage_rules.validate(kind, document, what)
        if kind is kinds.PODS:
            classes = self._state.newest_of(kinds.PRIORITY_CLASSES)
            try:
                pods.set_priority(
                    document, [kinds.PRIORITY_CLASSES.decode(stored.raw) for stored in classes]
                )
            except ValueError as error:
                raise errors.InvalidError(what, str(error)) from None

    async def _check_addable(self, kind: port.AnyKind, document: Document, what: str) -> None:
        metadata = document["metadata"]
        key = key_of(kind, metadata.get("namespace", ""), metadata["name"])
        if self._state.newest(key) is not None:
            raise errors.AlreadyExistsError(f"{what}{metadata['name']}", "already exists")
        if kind is kinds.PODS:
            self._quotas.check(document, what)

    async def _add(self, kind: port.AnyKind, document: Document, what: str) -> Stored:
        await self._check_addable(kind, document, what)
        metadata = document["metadata"]
        key = key_of(kind, metadata.get("namespace", ""), metadata["name"])
        return await self._state.change(key, "ADDED", document, what)

    def _check_namespace(self, namespace: str, what: str) -> None:
        if self._state.newest(key_of(kinds.NAMESPACES, "", namespace)) is None:
            raise errors.NotFoundError(what, f"namespace {namespace!r} not found")

    def _generate(self, kind: port.AnyKind, namespace: str, prefix: str) -> str:
        """Return an unused name with the prefix and a random suffix."""
        while True:
            number = uuid.uuid5(uuid.NAMESPACE_OID, self._ids()).int
            letters = [_SUFFIXES[number // 27**place % 27] for place in range(5)]
            name = prefix + "".join(letters)
            if self._state.newest(key_of(kind, namespace, name)) is None:
                return name

    async def _create_initial_objects(self) -> None:
        """Create the objects that exist in every cluster."""
        for name in ("default", "kube-system"):
            await self._create_initial_object(kinds.NAMESPACES, name)
        for name, value in pods.SYSTEM_CLASSES.items():
            await self._create_initial_object(kinds.PRIORITY_CLASSES, name, value=value)

    async def _create_initial_object(self, kind: port.AnyKind, name: str, **rest: Any) -> None:
        document = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            **rest,
        }
        if self._state.get(key_of(kind, "", name)) is None:
            storage_rules.prepare_for_create(kind, document, self._ids(), self._clock())
            await self._add(kind, document, _what("create", kind, name=name))

    # --- changing --------------------------------------------------------------------------

    @_refuses_durably
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
        """Patch an object; retry if it changed while hooks were called."""
        what = _what("patch", kind, namespace, name)
        kind = _served_kind(kind, what)
        if subresource == "status" and not kind.status_subresource:
            raise errors.NotFoundError(what, "the kind has no status subresource")
        key = key_of(kind, namespace, name)
        while True:
            stored = self._newest(key, what)
            old = stored.document()
            new = patches.apply(old, patch, patch_type, what)
            storage_rules.check_preconditions(old, new, what)
            new = await self._reviewed(kind, old, new, subresource, what)
            if self._state.newest(key) is stored:
                break
        if new == old:
            await self._state.settled()
            return stored.raw
        gone = deletion.is_released(new)
        return (await self._state.change(key, "DELETED" if gone else "MODIFIED", new, what)).raw

    async def _reviewed(
        self, kind: port.AnyKind, old: Document, new: Document, subresource: str, what: str
    ) -> Document:
        """Return the patched object after admission. Hooks see main resources only, no
        subresources.
        """
        new = storage_rules.prepare_for_update(
            kind, old, storage_rules.set_defaults(kind, new), subresource
        )
        if not subresource:
            mutated = await self._reviews.mutate(kind, "UPDATE", new, old, what)
            if mutated is not new:
                new = storage_rules.prepare_for_update(
                    kind, old, storage_rules.set_defaults(kind, mutated), subresource
                )
        if new != old:
            storage_rules.validate_update(kind, old, new, what)
            storage_rules.validate(kind, new, what)
        if not subresource:
            await self._reviews.validate(kind, "UPDATE", new, old, what)
        return new

    @_refuses_durably
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
        """Delete an object or mark it as terminating; dependents are collected in the
        background.
        """
        what = _what("delete", kind, namespace, name)
        kind = _served_kind(kind, what)
        if propagation in ("Foreground", "Orphan"):
            reason = f"propagation {propagation} is not supported here; use Background"
            raise errors.UnsupportedError(what, reason)
        if kind is kinds.NAMESPACES:
            raise errors.UnsupportedError(what, "the embedded cluster cannot delete namespaces")
        key = key_of(kind, namespace, name)
        while True:
            stored = self._newest(key, what)
            if uid and uid != stored.uid:
                raise errors.ConflictError(what, f"the uid is {stored.uid}, not {uid}")
            old = stored.document()
            await self._reviews.delete(kind, old, what)
            if self._state.newest(key) is stored:
                break
        marked = deletion.mark(kind, old, grace_seconds, self._clock())
        if marked is None:
            await self._state.change(key, "DELETED", old, what)
        elif marked is old:
            await self._state.settled()
        else:
            await self._state.change(key, "MODIFIED", marked, what)

    @_refuses_durably
    async def bind(
        self, namespace: str, pod: str, *, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """Bind a pod to a node in one change."""
        what = f"bind Pod {namespace}/{pod} to {node}"
        key = key_of(kinds.PODS, namespace, pod)
        bound = pods.bind(
            self._newest(key, what).document(), uid, node, annotations, self._clock(), what
        )
        await self._state.change(key, "MODIFIED", bound, what)

    @_refuses_durably
    async def evict(
        self, namespace: str, pod: str, *, uid: str, grace_seconds: int | None = None
    ) -> None:
        """Delete a pod in one change if its PodDisruptionBudget allows that."""
        what = f"evict Pod {namespace}/{pod}"
        key = key_of(kinds.PODS, namespace, pod)
        while True:
            stored = self._newest(key, what)
            if uid and uid != stored.uid:
                raise errors.ConflictError(what, f"the uid is {stored.uid}, not {uid}")
            await self._reviews.delete(kinds.PODS, stored.document(), what)
            if self._state.newest(key) is stored:
                break
        self._budgets.check(kinds.PODS.decode(stored.raw), what)
        old = pods.disrupted(stored.document(), self._clock())
        marked = deletion.mark(kinds.PODS, old, grace_seconds, self._clock())
        if marked is None:
            await self._state.change(key, "DELETED", old, what)
        else:
            await self._state.change(key, "MODIFIED", marked, what)

    def _newest(self, key: Key, what: str) -> Stored:
        stored = self._state.newest(key)
        if stored is None:
            raise errors.NotFoundError(what, "not found")
        return stored


def _served_kind(kind: port.AnyKind, what: str) -> port.AnyKind:
    """Return the kind with this name in the embedded cluster. Raises UnsupportedError."""
    served_kind = kinds.BY_NAME.get((kind.api_version, kind.kind))
    if served_kind is None:
        raise errors.UnsupportedError(
            what, f"{kind.plural} of {kind.api_version} are not served by the embedded cluster"
        )
    return served_kind


def _what(verb: str, kind: port.AnyKind, namespace: str = "", name: str = "") -> str:
    place = "/".join(part for part in (namespace, name) if part)
    return f"{verb} {kind.kind} {place}".rstrip()
