"""The plugin ``data-locality``: places pods where their data sets are, or can be fetched soon.

- *Score*: the fetch time that a node saves, compared with a node without any copy, divided by the
  fetch time of such a node or by ``data-locality.full-score-time``, whichever is longer. So a few
  seconds never outweigh other scores.
- *Locality* ``Required``: only nodes with complete copies are feasible. The session prefetches for
  such a gang (``prefetch``): otherwise no node might ever have a copy.
- *Room*: the data sets of all pods on a node must fit its cache together (``cache_room``).
- *Sharing*: ``Share`` prefers nodes that have, fetch or are to fetch the data set, ``Spread`` nodes
  that do not. The time to fetch such data sets is not part of the score.

Unknown facts (no report, an unknown size) exclude no node, except where locality is ``Required``.
Data sets that are claims are left to the plugin ``predicates``, like any claim.
"""

from collections.abc import Sequence

import numpy as np

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.data_locality import cache_room, fetch_times, prefetch
from stromboli.shared import keys
from stromboli.shared.formats import units
from stromboli.shared.jobspec import data_sets

BEST = 100
DEFAULT_WEIGHT = 10
DEFAULT_RATE = "100M"
DEFAULT_FULL_SCORE_TIME_S = 60


class Plugin:
    """Filters and scores nodes by the reports of their caches. Costs nothing in a session in which
    no pod has data sets."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = arguments = options.typed()
        self._weight = arguments.integer("data-locality.weight", DEFAULT_WEIGHT)
        self._full_score_time_s = max(
            arguments.integer("data-locality.full-score-time", DEFAULT_FULL_SCORE_TIME_S), 1
        )
        self._prefetches = arguments.boolean("data-locality.prefetch", default=True)
        self._rates = fetch_times.Rates(
            _rate(arguments, "data-locality.origin-rate", DEFAULT_RATE) or 1.0,
            _rate(arguments, "data-locality.rack-rate", "0"),
            _rate(arguments, "data-locality.zone-rate", "0"),
        )
        self._room: cache_room.CacheRoom | None = None
        self._estimates: fetch_times.FetchEstimates | None = None

    def open(self, ssn: session.Session) -> None:
        """Register; the reports are read when the first pod with a data set is considered."""
        ssn.complaints.extend(self._arguments.complaints)
        self._session = ssn
        ssn.add_predicate(self._lasting_checks, extension_points.Scope.STATIC)
        ssn.add_predicate(self._room_checks, extension_points.Scope.LOCAL)
        ssn.add_event_handler(self._on_allocate, self._on_deallocate)
        ssn.add_annotation(self._annotations)
        if self._weight > 0:
            ssn.add_node_order(self._time_score, extension_points.Scope.STATIC)
            ssn.add_node_order(self._sharing_score, extension_points.Scope.LOCAL)

    def close(self, ssn: session.Session) -> None:
        """Choose what to prefetch for the gangs that wait."""
        jobs = prefetch.candidates(ssn, with_preferred=self._prefetches)
        if jobs:
            wanted_copies = prefetch.plan(ssn, jobs, self._cache_room(), self._fetch_estimates())
            ssn.decisions.prefetches.update(wanted_copies)

    # Predicates

    def _lasting_checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> Sequence[extension_points.Check]:
        requests = task.task_class.data_sets
        if not requests:
            return ()
        room = self._cache_room()
        own = room.own_bytes(requests)
        fits = (own <= room.capacity) | (room.capacity == cache_room.UNKNOWN) | (own == 0)
        size = fetch_times.size_text(own)
        checks = [
            extension_points.Check(
                f"node(s) have a cache that is too small for {size} of data sets",
                extension_points.Code.UNRESOLVABLE,
                fits[view.rows],
                is_lasting=True,
            )
        ]
        required = [each for each in requests if each.locality == data_sets.REQUIRED]
        if required:
            has = self._has_all(required)
            checks.append(
                extension_points.Check(
                    f"{prefetch.LACKS}: {self._least_to_fetch(required)}",
                    extension_points.Code.UNRESOLVABLE,
                    has[view.rows],
                )
            )
        return checks

    def _room_checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> Sequence[extension_points.Check]:
        requests = task.task_class.data_sets
        if not requests:
            return ()
        room = self._cache_room()
        size = fetch_times.size_text(room.own_bytes(requests))
        return (
            extension_points.Check(
                f"node(s) had no room in their cache for {size} of data sets",
                extension_points.Code.UNSCHEDULABLE,
                room.has_room(requests)[view.rows],
            ),
        )

    def _has_all(self, requests: Sequence[data_sets.DataSetRequest]) -> extension_points.Mask:
        mask = np.ones(len(self._session.nodes), np.bool_)
        for request in requests:
            mask &= self._fetch_estimates().complete(request)
        return mask

    def _least_to_fetch(self, requests: Sequence[data_sets.DataSetRequest]) -> str:
        """The estimate for the node that would have the data sets first."""
        times = self._fetch_estimates().times(requests)
        if not len(times.seconds):
            return "no node"
        row = int(np.argmin(times.seconds))
        seconds = float(times.seconds[row])
        return fetch_times.describe(int(times.missing[row]), seconds, is_known=times.is_known)

    # Scores

    def _time_score(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        requests = [each for each in task.task_class.data_sets if not each.sharing]
        if not requests:
            return None
        estimates = self._fetch_estimates()
        worst = estimates.worst_seconds(requests)
        saved = np.clip(worst - estimates.times(requests).seconds[view.rows], 0, worst)
        return self._points(saved / max(worst, self._full_score_time_s))

    def _sharing_score(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        requests = [each for each in task.task_class.data_sets if each.sharing]
        if not requests:
            return None
        total = np.zeros(view.size, np.float64)
        for request in requests:
            there = self._fetch_estimates().arriving(request)
            if request.key:
                there = there | self._cache_room().held(request.key)
            has = there[view.rows]
            if view.added is not None:
                has = has | (view.added > 0)
            total += has if request.sharing == data_sets.SHARE else ~has
        return self._points(total / len(requests))

    def _points(self, share: "np.typing.NDArray[np.float64]") -> extension_points.Scores:
        scores: extension_points.Scores = np.rint(
            share * (BEST * self._weight * extension_points.SCORE_UNIT)
        ).astype(np.int64)
        return scores

    # Events

    def _on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        if tasks[0].task_class.data_sets:
            self._cache_room().count(tasks, 1)

    def _on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        if tasks[0].task_class.data_sets:
            self._cache_room().count(tasks, -1)

    def _annotations(self, task: entities.Task) -> dict[str, str]:
        requests = task.task_class.data_sets
        row = self._session.nodes.rows.get(task.node)
        if not requests or row is None:
            return {}
        times = self._fetch_estimates().times(requests)
        seconds = float(times.seconds[row])
        if not seconds:
            return {}
        missing = int(times.missing[row])
        return {keys.DATA_TO_FETCH: fetch_times.describe(missing, seconds, is_known=times.is_known)}

    # Built on first use

    def _cache_room(self) -> cache_room.CacheRoom:
        if self._room is None:
            self._room = cache_room.CacheRoom(self._session)
        return self._room

    def _fetch_estimates(self) -> fetch_times.FetchEstimates:
        if self._estimates is None:
            self._estimates = fetch_times.FetchEstimates(
                self._session, self._rates, self._cache_room()
            )
        return self._estimates


def _rate(arguments: configuration.Arguments, name: str, default: str) -> float:
    """A rate in bytes per second, as a quantity such as ``100M``."""
    value = arguments.values.get(name, default)
    try:
        bytes_per_s = units.quantity(value) if isinstance(value, str | int | float) else None
    except ValueError:
        bytes_per_s = None
    if bytes_per_s is None or bytes_per_s < 0:
        wanted = "a quantity of bytes per second such as 100M"
        bytes_per_s = units.quantity(arguments.record_invalid(name, value, wanted, default))
    return float(bytes_per_s)
