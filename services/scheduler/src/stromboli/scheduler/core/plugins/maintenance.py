"""The plugin ``maintenance``: places no task on a node whose maintenance begins before the task
ends.

The annotation ``stromboli.sh/maintenance`` of a node lists windows ``start/length`` or
``start/end``, separated by commas, with RFC 3339 times with a zone: ``2026-11-22T02:00:00Z/4h,
2026-11-29T02:00:00+01:00/2026-11-29T06:00:00+01:00``. A task without a known run time is not placed
on nodes with a future window. A node whose windows cannot be read takes no tasks, since a window
may be open. Nothing is evicted.
"""

import bisect
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.config import configuration, durations
from stromboli.scheduler.core.framework import run_times, session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import keys

REASON = "node(s) have a maintenance window before the task would end"
UNREADABLE = "node(s) have an invalid maintenance annotation"
NEVER_ENDS = float("inf")
LATEST = datetime(9999, 1, 1, tzinfo=UTC)
"""The latest end of a window: a later time cannot be written in every time zone."""


class Window(msgspec.Struct, frozen=True, order=True):
    """A half-open interval, in seconds since the epoch."""

    start: float
    end: float


class Plugin:
    """Has no arguments. Does nothing while no node has a current or future window."""

    def __init__(self, options: configuration.PluginOptions) -> None: ...

    def open(self, ssn: session.Session) -> None:
        """Read the windows of nodes and register if there are any. O(nodes)."""
        self._run_times = run_times.RunTimes(ssn)
        self._now = ssn.now
        self._windows: dict[int, list[Window]] = {}
        self._unreadable = np.zeros(len(ssn.nodes), np.bool_)
        for row, node in enumerate(ssn.nodes.objects):
            text = node.metadata.annotation(keys.MAINTENANCE)
            if text:
                self._read(ssn, row, text)
        if not self._windows and not self._unreadable.any():
            return
        self._starts = sorted(
            {each.start for node_windows in self._windows.values() for each in node_windows}
        )
        ssn.add_class_key(self._reach)
        ssn.add_predicate(self._check, extension_points.Scope.STATIC)
        ssn.add_availability(self._open)
        ends = [window.end for node_windows in self._windows.values() for window in node_windows]
        if ends:
            ssn.request_session_at(datetime.fromtimestamp(min(ends), ssn.now.tzinfo))

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _read(self, ssn: session.Session, row: int, text: str) -> None:
        try:
            node_windows = windows(text)
        except ValueError as error:
            name = ssn.nodes.names[row]
            ssn.complaints.append(
                f"Node {name}: {keys.MAINTENANCE}: {error}; the node takes no new pods"
            )
            self._unreadable[row] = True
            return
        ahead = [window for window in node_windows if window.end > self._now.timestamp()]
        if ahead:
            self._windows[row] = ahead

    def _reach(self, task: entities.Task) -> int:
        """Return how many windows begin before the task would end. Tasks with the same number have
        the same feasible nodes."""
        end = self._end(self._now, self._run_times.of(task))
        return bisect.bisect_left(self._starts, end)

    def _check(
        self, task: entities.Task, view: node_views.NodeView
    ) -> Sequence[extension_points.Check]:
        undisturbed = self._is_uninterrupted(self._now, self._run_times.of(task), view.rows)
        code = extension_points.Code.UNRESOLVABLE
        return [
            extension_points.Check(REASON, code, undisturbed, is_lasting=True),
            extension_points.Check(UNREADABLE, code, ~self._unreadable[view.rows], is_lasting=True),
        ]

    def _open(
        self, start: datetime, run_time: timedelta | None, rows: node_views.Rows
    ) -> extension_points.Mask:
        return self._is_uninterrupted(start, run_time, rows) & ~self._unreadable[rows]

    def _is_uninterrupted(
        self, start: datetime, run_time: timedelta | None, rows: node_views.Rows
    ) -> extension_points.Mask:
        """Return the nodes with no window between start and end. O(nodes with windows)."""
        begins, ends = start.timestamp(), self._end(start, run_time)
        mask = np.ones(len(self._unreadable), np.bool_)
        disturbed = [
            row
            for row, node_windows in self._windows.items()
            if any(window.start < ends and window.end > begins for window in node_windows)
        ]
        mask[np.array(disturbed, np.intp)] = False
        answer: npt.NDArray[np.bool_] = mask[rows]
        return answer

    @staticmethod
    def _end(start: datetime, run_time: timedelta | None) -> float:
        return NEVER_ENDS if run_time is None else durations.after(start, run_time).timestamp()


def windows(text: str) -> list[Window]:
    """Return the windows of an annotation, ordered by time. Raises ValueError with an example of
    the format."""
    return sorted(_window(part.strip()) for part in text.split(",") if part.strip())


def _window(text: str) -> Window:
    first, _, second = text.partition("/")
    start = _parse_time(first, text)
    if second[:1].isdigit() and "T" in second:
        end = _parse_time(second, text)
    else:
        try:
            end = start + durations.duration(second)
        except OverflowError:
            raise ValueError(f"{text!r} ends after the year 9999") from None
    if end > LATEST:
        raise ValueError(f"{text!r} ends after the year 9999")
    if end <= start:
        raise ValueError(f"{text!r} ends before it begins")
    return Window(start.timestamp(), end.timestamp())


def _parse_time(text: str, whole: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{whole!r} is not an interval: write 2026-11-22T02:00:00Z/4h")
    return moment
