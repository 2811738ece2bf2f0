"""Estimates how long each node would need to fetch the data sets of a pod.

The time is the sum over the data sets of missing bytes / rate. On a node with a complete copy no
bytes are missing; on one that is fetching, the rest is. The rate is the highest of these:

- the rate at which the node lately read from origins of the URI's scheme, else ``origin_rate``;
- ``rack_rate`` or ``zone_rate``, if a node of the same lowest topology domain, or of the same zone,
  has a complete copy. Both are 0 and unused unless the operator sets them: a node fetches from the
  origin, and only an origin that serves from such caches is faster near a copy.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.data_locality import cache_room
from stromboli.shared.jobspec import data_sets

ZONE = "topology.kubernetes.io/zone"
UNKNOWN_BYTES = 2**30
"""The assumed size of a data set of unknown size, for the comparison of nodes."""
FLUID_LABEL = "fluid.io/s-{}-{}"
"""Fluid labels nodes that have workers with a part of a data set."""


class Rates(msgspec.Struct, frozen=True):
    """Bytes per second."""

    origin: float
    rack: float
    zone: float


class FetchTimes(NamedTuple):
    """``missing``, ``seconds``: by row, the bytes to fetch and the time that this takes.
    ``is_known``: whether all sizes are known."""

    missing: cache_room.Bytes
    seconds: npt.NDArray[np.float64]
    is_known: bool


class FetchEstimates:
    """The estimates of one session, computed once for equal requests."""

    def __init__(self, ssn: session.Session, rates: Rates, room: cache_room.CacheRoom) -> None:
        self._session = ssn
        self._copies = ssn.model.auxiliary.data_copies
        self._rates = rates
        self._room = room
        self._origin: dict[str, npt.NDArray[np.float64]] = {}
        self._kept: dict[tuple[data_sets.DataSetRequest, ...], FetchTimes] = {}

    def times(self, requests: Sequence[data_sets.DataSetRequest]) -> FetchTimes:
        """The estimates of a pod with these data sets. O(nodes) once."""
        key = tuple(requests)
        estimate = self._kept.get(key)
        if estimate is None:
            estimate = self._kept[key] = self._sum(requests)
        return estimate

    def complete(self, request: data_sets.DataSetRequest) -> extension_points.Mask:
        """The nodes that have a complete copy, as far as known."""
        mask: extension_points.Mask = np.zeros(len(self._session.nodes), np.bool_)
        fluid = data_sets.fluid_data_set(request.uri)
        if fluid is not None:
            codes, _ = self._session.nodes.labelled.label_codes(FLUID_LABEL.format(*fluid))
            return codes >= 0
        mask[self._rows_with(request.key, ("Complete",))] = True
        return mask

    def arriving(self, request: data_sets.DataSetRequest) -> extension_points.Mask:
        """The nodes that have a complete copy, are fetching one, or are to fetch one."""
        mask = self.complete(request)
        mask[self._rows_with(request.key, ("Fetching", "Waiting"))] = True
        return mask

    def worst_seconds(self, requests: Sequence[data_sets.DataSetRequest]) -> float:
        """Seconds that a node without any copy needs to fetch everything at ``origin_rate``."""
        total = sum(self._size(request) or UNKNOWN_BYTES for request in requests)
        return total / self._rates.origin

    def _sum(self, requests: Sequence[data_sets.DataSetRequest]) -> FetchTimes:
        size = len(self._session.nodes)
        missing: cache_room.Bytes = np.zeros(size, np.int64)
        seconds: npt.NDArray[np.float64] = np.zeros(size, np.float64)
        is_known = True
        for request in _distinct(requests):
            known = self._size(request)
            is_known = is_known and known > 0
            bytes_ = self._missing(request, known)
            missing += bytes_ if known else 0
            seconds += bytes_ / self._rate(request)
        return FetchTimes(missing, seconds, is_known)

    def _missing(self, request: data_sets.DataSetRequest, known: int) -> cache_room.Bytes:
        whole = known or UNKNOWN_BYTES
        left: cache_room.Bytes = np.full(len(self._session.nodes), whole, np.int64)
        left[self.complete(request)] = 0
        rows = self._session.nodes.rows
        for name, copy in self._copies.of(request.key).items():
            if copy.state == "Fetching" and name in rows:
                left[rows[name]] = max(whole - copy.fetched_bytes, 0)
        return left

    def _rate(self, request: data_sets.DataSetRequest) -> npt.NDArray[np.float64]:
        rate = self._origin_rate(data_sets.scheme(request.uri))
        if not (self._rates.rack or self._rates.zone):
            return rate
        sources = self.complete(request)
        if not sources.any():
            return rate
        homes, is_flat = self._session.topology.tree.homes, self._session.topology.tree.is_flat
        if self._rates.rack and not is_flat:
            near = np.isin(homes, homes[sources])
            rate = np.maximum(rate, np.where(near, self._rates.rack, 0))
        if self._rates.zone:
            zones, _ = self._session.nodes.labelled.label_codes(ZONE)
            near = (zones >= 0) & np.isin(zones, zones[sources])
            rate = np.maximum(rate, np.where(near, self._rates.zone, 0))
        return rate

    def _origin_rate(self, scheme: str) -> npt.NDArray[np.float64]:
        rates_by_row = self._origin.get(scheme)
        if rates_by_row is None:
            rows = self._session.nodes.rows
            rates_by_row = np.full(len(self._session.nodes), self._rates.origin, np.float64)
            for name, report in self._copies.reports.items():
                measured = report.read_bytes_per_s.get(scheme, 0)
                if measured > 0 and name in rows:
                    rates_by_row[rows[name]] = measured
            self._origin[scheme] = rates_by_row
        return rates_by_row

    def _size(self, request: data_sets.DataSetRequest) -> int:
        return (self._room.size(request.key) if request.key else 0) or request.bytes

    def _rows_with(self, key: str, states: Sequence[str]) -> list[int]:
        rows = self._session.nodes.rows
        copies_by_node = self._copies.of(key).items()
        return [
            rows[name] for name, copy in copies_by_node if copy.state in states and name in rows
        ]


def _distinct(
    requests: Sequence[data_sets.DataSetRequest],
) -> list[data_sets.DataSetRequest]:
    """The requests, each content once."""
    return list({request.key or request.uri: request for request in requests}.values())


def describe(missing: int, seconds: float, *, is_known: bool) -> str:
    """The estimate as text: ``12.0 GB to fetch, about 40 s``."""
    if not is_known:
        return f"at least {size_text(missing)} to fetch" if missing else "data to fetch"
    return f"{size_text(missing)} to fetch, about {_duration_text(seconds)}"


def size_text(size: int) -> str:
    """Bytes with a decimal unit: ``12.0 GB``."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def _duration_text(seconds: float) -> str:
    if seconds <= 120:
        return f"{max(round(seconds), 1)} s"
    if seconds < 7200:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h"
