"""The meaning of an AdvanceReservation: its period, its nodes, and the jobs that may use it.

Admission validates with these functions, and the scheduler places with them.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from stromboli.shared.api import reservation
from stromboli.shared.formats import durations

DEFAULT_LEAD_TIME = timedelta(days=7)
"""The time before the start in which pods without a time limit are not placed on the nodes."""
LATEST = datetime(9999, 1, 1, tzinfo=UTC)
"""The latest end of a period: a later time cannot be written in every time zone."""


class Period(msgspec.Struct, frozen=True):
    """A half-open interval."""

    start: datetime
    end: datetime

    def overlaps(self, other: "Period") -> bool:
        """Whether both contain the same moment."""
        return self.start < other.end and other.start < self.end


def period(spec: reservation.AdvanceReservationSpec) -> Period:
    """The period of a reservation. Raises ValueError that names the invalid field."""
    start, end = spec.start_time, spec.end_time
    if start is None:
        raise ValueError("startTime is missing")
    if (end is None) == (not spec.duration):
        raise ValueError("write either endTime or duration")
    if end is None:
        try:
            end = start + durations.duration(spec.duration)
        except OverflowError:
            raise ValueError("the period ends after the year 9998") from None
    if end > LATEST:
        raise ValueError("the period ends after the year 9998")
    if end <= start:
        raise ValueError("the period ends before it begins")
    return Period(start, end)


def is_over(spec: reservation.AdvanceReservationSpec, now: datetime) -> bool:
    """Whether the period has ended; False for an invalid reservation."""
    try:
        return period(spec).end <= now
    except ValueError:
        return False


def lead_time(spec: reservation.AdvanceReservationSpec) -> timedelta:
    """The time before the start in which pods without a time limit are not placed. Raises
    ValueError."""
    duration = durations.duration(spec.lead_time) if spec.lead_time else DEFAULT_LEAD_TIME
    if duration < timedelta():
        raise ValueError(f"leadTime {spec.lead_time!r} is negative")
    return duration


def covers(
    spec: reservation.AdvanceReservationSpec, name: str, labels: Mapping[str, str] | None
) -> bool:
    """Whether a node is reserved."""
    wanted = spec.node_selector or {}
    return (
        spec.all_nodes
        or name in spec.node_names
        or (bool(wanted) and wanted.items() <= (labels or {}).items())
    )


def may_use(
    spec: reservation.AdvanceReservationSpec,
    *,
    user: str,
    groups: Collection[str],
    namespace: str,
    queue: str,
) -> bool:
    """Whether a job may use the reserved nodes. ``user``, ``groups``: of the recorded submitter;
    an empty user is unknown and is not one of the users."""
    if spec.maintenance:
        return False
    return (
        (bool(user) and user in spec.users)
        or not set(spec.groups).isdisjoint(groups)
        or namespace in spec.namespaces
        or queue in spec.queues
    )


def evicts_at_start(spec: reservation.AdvanceReservationSpec) -> bool:
    """Whether pods of other jobs that still run at the start are evicted: by default only for
    maintenance."""
    return spec.at_start == reservation.EVICT or (spec.maintenance and not spec.at_start)


def evicts_at_end(spec: reservation.AdvanceReservationSpec) -> bool:
    """Whether pods of the reservation that still run at its end are evicted: by default they
    continue."""
    return spec.at_end == reservation.EVICT
