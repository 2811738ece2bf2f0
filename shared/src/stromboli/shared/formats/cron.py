"""Cron schedules: validates them, and computes their times as instants in UTC.

The grammar is that of Kubernetes (the standard parser of robfig/cron): five fields of ``*``, ``?``,
numbers, ranges, steps, lists, names of months and days; descriptors such as ``@daily``; and
``@every 1h30m``, counted from a fixed time, so that a restart does not change the times.

Clock changes for daylight saving are handled as in Debian's cron. A schedule for fixed times of day
runs once on such days: immediately after the change if its time is skipped, at the first occurrence
if its time occurs twice. A schedule whose minute or hour begins with ``*`` follows elapsed time.

The library cronsim iterates over the times. It steps in hours, and so misses times if the clock
changes by half an hour. Therefore a schedule that follows elapsed time is iterated once for each
UTC offset of its zone, and only the times with that offset are used.
"""

import functools
import heapq
import itertools
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import cronsim
import msgspec

from stromboli.shared import decoding
from stromboli.shared.formats import durations
from stromboli.shared.formats.counts import counted

MOST_MISSED = 100
"""Maximum count of missed times."""
DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_CLOCK_CHANGE = timedelta(hours=3)
"""Upper bound of any clock change."""


class Field(msgspec.Struct, frozen=True):
    """One of the five fields: its lowest and highest value, and the names of its values, beginning
    with ``low``. ``is_day``: a day field. If neither day field is ``*``, one of them must match;
    otherwise both must.
    """

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    is_day: bool = False


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of month", 1, 31, is_day=True),
    Field("month", 1, 12, _MONTHS),
    Field("day of week", 0, 6, _DAYS, is_day=True),
)
"""The fields in the order in which a schedule has them."""


def problem(text: str) -> str | None:
    """Why a schedule is invalid; None if it is valid."""
    if not text.strip():
        return "is empty"
    if "TZ" in text:
        return f"{text!r} names a time zone; set spec.timeZone instead"
    if text.startswith("@"):
        return None if text in DESCRIPTORS or _interval(text) else f"{text!r} is not a descriptor"
    parts = text.split()
    if len(parts) != len(FIELDS):
        return f"{text!r} has {counted(len(parts), 'field')}, not {len(FIELDS)}"
    for part, field in zip(parts, FIELDS, strict=True):
        for item in part.split(","):
            if _span(item, field) is None:
                return f"{item!r} is not a valid {field.name} ({field.low} to {field.high})"
    return None


class Schedule:
    """The times of one schedule. ``anchor``: the time from which ``@every`` counts. Raises
    ValueError for a schedule that is invalid or never occurs, or for an unknown time zone.
    """

    def __init__(self, text: str, time_zone: str | None, anchor: datetime) -> None:
        wrong = problem(text)
        if wrong is not None:
            raise ValueError(f"the schedule {wrong}")
        self._anchor = anchor.astimezone(UTC).replace(microsecond=0)
        try:
            self._zone = zoneinfo.ZoneInfo(time_zone or "UTC")
        except (zoneinfo.ZoneInfoNotFoundError, OSError):
            raise ValueError(f"there is no time zone {time_zone!r}") from None
        self._every = _interval(text)
        self._fields = ""
        self._follows_time = False
        if self._every is None:
            parts = DESCRIPTORS.get(text, text).split()
            self._fields = " ".join(map(_plain, parts, FIELDS))
            minute, hour, *_ = self._fields.split()
            self._follows_time = minute.startswith("*") or hour.startswith("*")
            try:
                self._walk(self._anchor, is_back=False)
            except cronsim.CronSimError:
                raise ValueError(
                    f"the schedule {text!r} never occurs: no month has this day"
                ) from None

    def next_after(self, at: datetime) -> datetime | None:
        """The first time after ``at``; None if there is none for decades."""
        return next(self._after(at), None)

    def last_until(self, after: datetime, until: datetime) -> datetime | None:
        """The last time later than ``after`` and not later than ``until``; None without one."""
        if self._every is not None:
            last = self._anchor + (until - self._anchor) // self._every * self._every
            return last if last > max(after, self._anchor) else None
        # Compare with the end of the second: times are whole seconds.
        begin = until.replace(microsecond=0) + timedelta(seconds=1)
        occurrences = (at for at in self._walk(begin, is_back=True) if at <= until)
        last_one = next(occurrences, None)
        return last_one if last_one is not None and last_one > after else None

    def count(self, after: datetime, until: datetime) -> int:
        """The number of times later than ``after`` and not later than ``until``, at most
        ``MOST_MISSED + 1``."""
        times = itertools.takewhile(lambda at: at <= until, self._after(after))
        return sum(1 for _ in itertools.islice(times, MOST_MISSED + 1))

    def _after(self, at: datetime) -> Iterator[datetime]:
        if self._every is not None:
            steps = max(0, (at - self._anchor) // self._every)
            for step in itertools.count(steps + 1):
                yield self._anchor + step * self._every
        last = at
        for occurrence in self._walk(at, is_back=False):
            # Times that the clock skips coincide at the end of the gap.
            if occurrence > last:
                last = occurrence
                yield occurrence

    def _walk(self, begin: datetime, *, is_back: bool) -> Iterator[datetime]:
        """Times from ``begin`` forwards or backwards, in UTC. Near a clock change the iteration
        begins earlier, since an instant after the change may have an earlier local time.
        """
        if self._follows_time:
            return self._walk_all(begin, is_back=is_back)
        offsets = {
            (begin + step * _CLOCK_CHANGE).astimezone(self._zone).utcoffset() for step in (-1, 0, 1)
        }
        if len(offsets) > 1:
            begin += _CLOCK_CHANGE if is_back else -_CLOCK_CHANGE
        local_times = cronsim.CronSim(self._fields, begin.astimezone(self._zone), is_back)
        return (at.astimezone(UTC) for at in local_times)

    def _walk_all(self, begin: datetime, *, is_back: bool) -> Iterator[datetime]:
        """As ``_walk``, for a schedule that follows elapsed time."""
        walks = (
            self._walk_with(offset, begin, is_back=is_back)
            for offset in _offsets(self._zone, begin.year)
        )
        for at, offset in heapq.merge(*walks, reverse=is_back):
            if at.astimezone(self._zone).utcoffset() == offset:
                yield at

    def _walk_with(
        self, offset: timedelta, begin: datetime, *, is_back: bool
    ) -> Iterator[tuple[datetime, timedelta]]:
        local_times = cronsim.CronSim(self._fields, begin.astimezone(timezone(offset)), is_back)
        return ((at.astimezone(UTC), offset) for at in local_times)


@functools.lru_cache(maxsize=1024)
def _offsets(zone: zoneinfo.ZoneInfo, year: int) -> frozenset[timedelta]:
    """All UTC offsets that a zone has from the year before ``year`` to two years after it."""
    days = (datetime(year - 1, 1, 1, tzinfo=UTC) + timedelta(days=7 * it) for it in range(4 * 53))
    utc_offsets = (day.astimezone(zone).utcoffset() for day in days)
    return frozenset(it for it in utc_offsets if it is not None)


def _interval(text: str) -> timedelta | None:
    """The interval of ``@every``: at least one second, since a shorter one would always be due."""
    length = text.removeprefix(_EVERY)
    if length == text or length[:1] in ("+", "-"):
        return None
    try:
        duration = durations.duration(length)
    except ValueError:
        return None
    return max(timedelta(seconds=1), duration - duration % timedelta(seconds=1))


def _span(item: str, field: Field) -> range | None:
    """The values of a list item ``*``, ``?``, ``n`` or ``n-m`` with an optional ``/step``; None if
    invalid.
    """
    span, slash, step = item.partition("/")
    every = decoding.number(step) if slash else 1
    if not every:
        return None
    if span in ("*", "?"):
        span = f"{field.low}-{field.high}"
    begin, dash, end = span.partition("-")
    first = _value(begin, field)
    last = _value(end, field) if dash else first
    if first is None or last is None or not field.low <= first <= last <= field.high:
        return None
    # n/step means from n to the highest value.
    to = field.high if slash and not dash else last
    return range(first, to + 1, every)


def _value(text: str, field: Field) -> int | None:
    if (integer := decoding.number(text)) is not None:
        return integer
    name = text.lower()
    return field.names.index(name) + field.low if name in field.names else None


def _plain(part: str, field: Field) -> str:
    """A field in a form that cronsim interprets as robfig/cron interprets the original.

    In robfig/cron, ``*/2`` in a day field is a list of days and not a ``*``; ``3-3/2`` is 3 alone;
    days of week end at 6.
    """
    items = part.replace("?", "*").split(",")
    if any(item in ("*", "*/1") for item in items):
        return "*"
    if len(items) == 1 and part[0] in "*?" and not field.is_day:
        return items[0]
    values = {value for item in items for value in _span(item, field) or ()}
    return ",".join(map(str, sorted(values)))
