"""Lists of an API server's objects, shared by the reviews of one request.

A review reads queues, priority classes or HyperNodes from the API server if its cache does not have
what an object names, because the object may have been created a moment ago. A request may have
thousands of such objects, and a list for each of them would cost O(objects x queues).
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from typing import Any, TypeVar

import msgspec

from stromboli.shared import errors, keys
from stromboli.shared.api import kinds, meta
from stromboli.shared.api.kinds import Kind
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.messages.admission import Violation

T = TypeVar("T", bound=meta.Object)
MAX_AGE_S = 1.0
"""Maximum age of a shared list in seconds, so that long requests see objects created meanwhile."""


class Listings:
    """The newest list of each kind. Memory: one decoded list per kind, for ``MAX_AGE_S``."""

    def __init__(self, cluster: cluster_port.Cluster) -> None:
        self._cluster = cluster
        self._newest: dict[Kind[Any], tuple[float, list[Any]]] = {}
        self._locks: defaultdict[Kind[Any], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of(self, kind: Kind[T], since: float) -> list[T]:
        """All readable objects of a kind, from a list request that began at ``since`` or later;
        empty if the kind is not installed. ``since``: seconds of ``time.monotonic``; the event
        loop's clock is too coarse, since an object may be created within one of its ticks. Raises
        ExternalError.
        """
        async with self._locks[kind]:
            began, decoded_objects = self._newest.get(kind, (-1.0, []))
            if began >= max(since, time.monotonic() - MAX_AGE_S):
                return decoded_objects
            began, decoded_objects = time.monotonic(), []
            with contextlib.suppress(errors.NotFoundError):
                for item in (await self._cluster.list(kind)).items:
                    with contextlib.suppress(msgspec.DecodeError):  # unreadable: it stays absent
                        decoded_objects.append(kind.decode(item))
            self._newest[kind] = began, decoded_objects
            asyncio.get_running_loop().call_later(MAX_AGE_S, self._forget, kind, began)
            return decoded_objects

    def _forget(self, kind: Kind[Any], began: float) -> None:
        if kind in self._newest and self._newest[kind][0] == began:
            del self._newest[kind]


def may_depend_on_queues(reported_violations: tuple[Violation, ...]) -> bool:
    """Whether newer data about queues could change the result: a queue that is absent or closed in
    the cache may exist or be open by now."""
    return any(violation.path in ("spec.queue", "spec.parent") for violation in reported_violations)


def is_about_queues(kind: Kind[Any], document: Document) -> bool:
    """Whether the object is a queue or a command for a queue. Their changes are rare and affect
    other queues, so they are validated with queues read from the API server."""
    target = document.get("target")
    return kind == kinds.QUEUES or (
        kind == kinds.COMMANDS
        and isinstance(target, dict)
        and target.get("kind") == kinds.QUEUES.kind
    )


def is_about_reservations(kind: Kind[Any], document: Document) -> bool:
    """Whether the object is a reservation, or a job that names one."""
    metadata = document.get("metadata")
    metadata_annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    named = isinstance(metadata_annotations, dict) and bool(
        metadata_annotations.get(keys.RESERVATION)
    )
    return kind == kinds.ADVANCE_RESERVATIONS or (kind == kinds.JOBS and named)


def may_depend_on_topology(reported_violations: tuple[Violation, ...]) -> bool:
    """Whether newer data about HyperNodes could change the result."""
    return any(violation.path.endswith("networkTopology") for violation in reported_violations)
