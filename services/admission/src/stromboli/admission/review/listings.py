"""Lists of an API server's objects, shared by the reviews of one request.

A review reads queues, priority classes or HyperNodes from the API server if its cache does not have
what an object names, because the object may have been created a moment ago. A request has up to
thousands of such objects: reading for each of them would cost their number times the number of
queues.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from typing import Any, TypeVar

import msgspec

from stromboli.shared import errors
from stromboli.shared.api import meta
from stromboli.shared.api.kinds import Kind
from stromboli.shared.cluster import port as cluster_port

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
        """All readable objects of a kind, from a list that began after ``since`` (monotonic time;
        the event loop's has milliseconds, in which an object may be created); none where the kind
        is not installed. Raises ExternalError.
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
