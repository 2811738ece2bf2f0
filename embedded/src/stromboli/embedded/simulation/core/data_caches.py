"""The caches of data sets on simulated nodes: what they fetch and evict, and how long it takes.

The policy of real caches (``shared.data_cache.policy``) decides what to fetch and to evict. A node
fetches one copy after another, at the rate of its group; the origin serves all nodes at their
rates. A fetch that is stopped keeps its bytes, and continues from there.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from stromboli.embedded.simulation.core import workload
from stromboli.shared.data_cache import policy
from stromboli.shared.messages import data

PARALLEL = 1
"""Copies that a node fetches at once: several would share its rate."""


class Fetch(NamedTuple):
    """A fetch in progress. ``bytes_before``: held when it started."""

    node: str
    key: str
    started_us: int
    end_us: int
    bytes_before: int


class _Cache:
    """The cache of one node."""

    def __init__(self, group: workload.NodeGroup) -> None:
        self.group = group
        self.copies: dict[str, policy.CachedCopy] = {}
        self.wanted: tuple[data.WantedCopy, ...] = ()
        self.fetch: Fetch | None = None


class DataCaches:
    """All caches. ``fetched_bytes``: bytes that nodes have read from origins so far."""

    def __init__(self, groups: Mapping[str, workload.NodeGroup]) -> None:
        self._caches = {
            name: _Cache(group) for name, group in groups.items() if group.cache_bytes > 0
        }
        self.fetched_bytes = 0

    @property
    def nodes(self) -> Iterable[str]:
        """The nodes with a cache."""
        return self._caches

    def has(self, node: str, keys: Iterable[str]) -> bool:
        """Whether the node has complete copies of all of these; a node without a cache has
        everything, as pods of such nodes read from the origin."""
        cache = self._caches.get(node)
        if cache is None:
            return True
        return all(key in cache.copies and cache.copies[key].state == "Complete" for key in keys)

    def set_wanted(self, wanted: data.DataWanted, now_us: int) -> Fetch | None:
        """Replace what a node should have. Returns a fetch that starts."""
        cache = self._caches.get(wanted.node)
        if cache is None:
            return None
        kept = {item.key for item in wanted.items}
        for item in cache.wanted:
            copy = cache.copies.get(item.key)
            if item.key not in kept and copy is not None:
                at = workload.datetime_at(now_us)
                cache.copies[item.key] = msgspec.structs.replace(copy, last_used_at=at)
        cache.wanted = wanted.items
        return self._next(wanted.node, now_us)

    def finish(self, fetch: Fetch, now_us: int) -> tuple[bool, Fetch | None]:
        """End a fetch. Return whether it was still in progress, and the fetch that follows it."""
        cache = self._caches[fetch.node]
        if cache.fetch != fetch:
            return False, None
        self._progress(cache, now_us)
        copy, at = cache.copies[fetch.key], workload.datetime_at(now_us)
        self.fetched_bytes += copy.size_bytes - copy.held_bytes  # rounding
        cache.copies[fetch.key] = msgspec.structs.replace(
            copy, state="Complete", held_bytes=copy.size_bytes, last_used_at=at
        )
        cache.fetch = None
        return True, self._next(fetch.node, now_us)

    def clear(self, node: str) -> None:
        """Remove the copies of a node that has lost them."""
        cache = self._caches.get(node)
        if cache is not None:
            self._caches[node] = _Cache(cache.group)

    def report(self, node: str, now_us: int) -> data.DataObserved:
        """What the node's cache reports."""
        cache = self._caches[node]
        copies = tuple(
            data.DataCopy(
                key=copy.key,
                uri=copy.uri,
                bytes=copy.size_bytes,
                state="Waiting" if copy.state == "Partial" else copy.state,
                fetched_bytes=copy.held_bytes,
            )
            for _, copy in sorted(cache.copies.items())
        )
        return data.DataObserved(
            node=node,
            observed_at=workload.datetime_at(now_us),
            capacity_bytes=cache.group.cache_bytes,
            used_bytes=sum(copy.held_bytes for copy in cache.copies.values()),
            copies=copies,
            read_bytes_per_s={"s3": cache.group.read_bytes_per_s},
        )

    def _next(self, node: str, now_us: int) -> Fetch | None:
        cache = self._caches[node]
        self._progress(cache, now_us)
        content = policy.CacheContent(
            capacity_bytes=cache.group.cache_bytes, copies=cache.copies, rates={}
        )
        plan = policy.plan(content, cache.wanted, workload.datetime_at(now_us), PARALLEL)
        for key in plan.stop:
            cache.copies[key] = msgspec.structs.replace(cache.copies[key], state="Partial")
            cache.fetch = None
        for key in plan.evict:
            del cache.copies[key]
        for key in plan.start:
            item = next(each for each in cache.wanted if each.key == key)
            self._start(cache, node, item, now_us)
        return cache.fetch if plan.start else None

    def _start(self, cache: _Cache, node: str, item: data.WantedCopy, now_us: int) -> None:
        before = cache.copies.get(item.key)
        cached_bytes = 0 if before is None else before.held_bytes
        cache.copies[item.key] = policy.CachedCopy(
            key=item.key,
            uri=item.uri,
            state="Fetching",
            held_bytes=cached_bytes,
            size_bytes=item.bytes,
        )
        left, rate = item.bytes - cached_bytes, cache.group.read_bytes_per_s
        took_us = -(-left * workload.SECOND_US // rate)
        cache.fetch = Fetch(node, item.key, now_us, now_us + took_us, cached_bytes)

    def _progress(self, cache: _Cache, now_us: int) -> None:
        """Count the bytes that the fetch in progress has read until now."""
        fetch = cache.fetch
        if fetch is None:
            return
        copy = cache.copies[fetch.key]
        read = cache.group.read_bytes_per_s * (now_us - fetch.started_us) // workload.SECOND_US
        cached_bytes = min(fetch.bytes_before + read, copy.size_bytes)
        self.fetched_bytes += cached_bytes - copy.held_bytes
        cache.copies[fetch.key] = msgspec.structs.replace(copy, held_bytes=cached_bytes)
