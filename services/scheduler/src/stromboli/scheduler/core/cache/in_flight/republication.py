"""Schedules republications, so that a lost record leaves no decision open indefinitely.

A decision that is open after ``FIRST_WAIT`` (plus the notice that it gives to pods) is published
again under its id, then after twice the time, up to ``MAX_WAIT``. The controller answers each
publication and does nothing twice. A republication also moves the decision to the end of the topic,
so that a decision that stays open for hours does not make a restart read hours of records.

A controller that is behind must not get more work from republications: of decisions that it may not
have reached yet, at most ``MAX_PER_STEP`` are republished within ``FIRST_WAIT``. For those that it
has passed (below the offset up to which it has answered everything), the outcome is certainly lost.

All times are of the caller's clock; the age of a decision starts when ``due`` first sees it. If the
clock is set back, all ages start again.
"""

import heapq
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from stromboli.scheduler.core.cache.in_flight.assumptions import Decision

FIRST_WAIT = timedelta(seconds=30)
"""Age at which an open decision is republished. Outcomes take milliseconds, and snapshots that are
later than this count as stale."""
MAX_WAIT = timedelta(minutes=10)
"""Longest time between two publications."""
MAX_PER_STEP = 200
"""Republications within ``FIRST_WAIT`` of decisions that the controller may not have reached."""
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class _Entry(msgspec.Struct, eq=False):
    decision: Decision
    wait: timedelta = FIRST_WAIT


class RepublicationSchedule:
    """Open decisions by the time of their next republication. O(log open) for each decision."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._new: dict[str, None] = {}
        self._heap: list[tuple[datetime, str]] = []
        self._recent: dict[str, datetime] = {}
        self._now = _LONG_AGO

    def add(self, decision: Decision) -> None:
        """Add a decision that was published or republished."""
        known = self._entries.get(decision.id)
        if known is not None:
            known.decision = decision
            return
        self._entries[decision.id] = _Entry(decision)
        self._new[decision.id] = None

    def remove(self, decision: Decision) -> None:
        """Remove a decision that is closed."""
        self._entries.pop(decision.id, None)
        self._new.pop(decision.id, None)
        self._recent.pop(decision.id, None)

    def due(self, now: datetime, answered_below: int) -> list[Decision]:
        """Decisions to republish now. ``answered_below``: offset that the controller has passed."""
        if now < self._now:
            self._heap.clear()
            self._recent.clear()
            self._new = dict.fromkeys(self._entries)
        self._now = now
        for id_ in self._new:
            heapq.heappush(self._heap, (now + _first_wait(self._entries[id_]), id_))
        self._new.clear()
        self._forget_before(now - FIRST_WAIT)
        return list(self._due(now, answered_below))

    @property
    def next_at(self) -> datetime | None:
        """When to call ``due`` again; None if nothing is open."""
        while self._heap and self._heap[0][1] not in self._entries:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _due(self, now: datetime, answered_below: int) -> Iterator[Decision]:
        while self._heap and self._heap[0][0] <= now:
            _, id_ = heapq.heappop(self._heap)
            entry = self._entries.get(id_)
            if entry is None:
                continue
            decision = entry.decision
            if decision.offset >= answered_below and not _may_take_long(decision):
                if len(self._recent) >= MAX_PER_STEP:
                    heapq.heappush(self._heap, (now + FIRST_WAIT, id_))
                    continue
                self._recent[id_] = now
            entry.wait = min(entry.wait * 2, MAX_WAIT)
            heapq.heappush(self._heap, (now + entry.wait, id_))
            yield decision

    def _forget_before(self, limit: datetime) -> None:
        while self._recent:
            id_, at = next(iter(self._recent.items()))
            if at > limit:
                return
            del self._recent[id_]


def _first_wait(entry: _Entry) -> timedelta:
    return entry.wait + timedelta(seconds=entry.decision.longest_notice_s)


def _may_take_long(decision: Decision) -> bool:
    return decision.awaits_volumes or decision.longest_notice_s > 0
