"""A cluster with late and lost responses, closed watches and concurrent writers.

Conflicts are injected only for patches with a test: an API server raises none for others, and a
client may rely on that.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from types import TracebackType
from typing import Literal, Self

from stromboli.embedded.fault_injection.faults import (
    DEFAULT_RATES,
    FaultRates,
    Seed,
    SeededFaults,
    Sleep,
)
from stromboli.shared import errors
from stromboli.shared.cluster import port


class FaultyCluster:
    """Wraps a cluster and injects faults into its operations."""

    def __init__(
        self,
        cluster: port.Cluster,
        seed: Seed,
        rates: FaultRates = DEFAULT_RATES,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._cluster = cluster
        self._dice = SeededFaults(seed, rates, sleep)
        self._trouble = rates

    async def __aenter__(self) -> Self:
        """Enter the wrapped cluster."""
        await self._cluster.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the wrapped cluster."""
        await self._cluster.__aexit__(kind, error, trace)

    async def get(self, kind: port.AnyKind, namespace: str, name: str) -> bytes:
        """Return one object, late; the call may fail."""
        what = f"get {kind.kind} {namespace}/{name}"
        return await self._dice.call(what, lambda: self._cluster.get(kind, namespace, name))

    async def list(
        self, kind: port.AnyKind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> port.Listing:
        """Return all objects, late; the call may fail."""
        what = f"list {kind.kind} {namespace}"
        return await self._dice.call(what, lambda: self._cluster.list(kind, namespace, labels))

    async def page(
        self,
        kind: port.AnyKind,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        *,
        limit: int,
        after: str = "",
    ) -> port.Page:
        """Return a page of objects, late; the call may fail."""
        what = f"list {kind.kind} {namespace}"
        return await self._dice.call(
            what, lambda: self._cluster.page(kind, namespace, labels, limit=limit, after=after)
        )

    async def watch(
        self, kind: port.AnyKind, resource_version: str
    ) -> AsyncGenerator[port.WatchEvent, None]:
        """Yield changes with delays; the watch closes at random."""
        what = f"watch {kind.kind}"
        chance = self._dice.draw(what)
        await self._dice.delay(chance)
        if chance.random() < self._trouble.expired:
            raise errors.ExpiredError(
                what, f"version {resource_version} is not kept (injected fault)"
            )
        inner = self._cluster.watch(kind, resource_version)
        try:
            async for event in inner:
                await self._dice.delay(chance)
                yield event
                if chance.random() < self._trouble.closed:
                    return
        finally:
            await inner.aclose()

    async def create(
        self, kind: port.AnyKind, namespace: str, body: bytes, *, dry_run: bool = False
    ) -> bytes:
        """Create an object; the response may be lost."""
        what = f"create {kind.kind} {namespace}"
        return await self._dice.call(
            what, lambda: self._cluster.create(kind, namespace, body, dry_run=dry_run)
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
        """Patch an object; the response may be lost, or a concurrent write causes a conflict."""
        what = f"patch {kind.kind} {namespace}/{name}"
        tests = b'"test"' in patch if patch_type == "json" else b'"resourceVersion"' in patch
        if tests and self._dice.draw(f"race {what}").random() < self._trouble.conflict:
            raise errors.ConflictError(what, "injected fault: concurrent write")
        return await self._dice.call(
            what,
            lambda: self._cluster.patch(
                kind, namespace, name, patch, patch_type=patch_type, subresource=subresource
            ),
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
        """Delete an object; the response may be lost."""
        await self._dice.call(
            f"delete {kind.kind} {namespace}/{name}",
            lambda: self._cluster.delete(
                kind,
                namespace,
                name,
                uid=uid,
                grace_seconds=grace_seconds,
                propagation=propagation,
            ),
        )

    async def bind(
        self, namespace: str, pod: str, *, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """Bind a pod; the response may be lost."""
        await self._dice.call(
            f"bind Pod {namespace}/{pod}",
            lambda: self._cluster.bind(namespace, pod, uid=uid, node=node, annotations=annotations),
        )

    async def evict(
        self, namespace: str, pod: str, *, uid: str, grace_seconds: int | None = None
    ) -> None:
        """Evict a pod; the response may be lost."""
        await self._dice.call(
            f"evict Pod {namespace}/{pod}",
            lambda: self._cluster.evict(namespace, pod, uid=uid, grace_seconds=grace_seconds),
        )

    @contextlib.asynccontextmanager
    async def logs(
        self, namespace: str, pod: str, query: port.LogQuery
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Read the output of a container, late."""
        await self._dice.delay(self._dice.draw(f"read the log of Pod {namespace}/{pod}"))
        async with self._cluster.logs(namespace, pod, query) as chunks:
            yield chunks

    def server_time(self) -> port.ServerTime | None:
        """Return the time in the last response of the wrapped cluster."""
        return self._cluster.server_time()

    async def is_reachable(self) -> bool:
        """Return whether the wrapped cluster is reachable."""
        return await self._cluster.is_reachable()
