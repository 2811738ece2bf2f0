"""Cron schedules: what can be read as one, and its times as instants in UTC.

The grammar is the one that users of Kubernetes know (the standard parser of robfig/cron): five
fields of ``*``, ``?``, numbers, ranges, steps, lists, names of months and days; descriptors such as
``@daily``; ``@every 1h30m``, counted from an anchor, so that a restart changes no time.

A schedule for fixed times of day runs once on days on which the clock changes: at once when its
time is left out, the first time when it comes twice. One whose minute or hour begins with ``*``
follows the time that passes. Both as in Debian's cron; cronsim does the walking. It walks in hours,
and so passes over times where a clock is set by half of one: a schedule that follows the time is
walked with each offset that its zone has, and of each walk those times are taken that have it.
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

MOST_MISSED = 100
"""Times counted before counting is given up."""
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
"""No clock is set by more."""


class Field(msgspec.Struct, frozen=True):
    """One of the five fields: its lowest and highest value, and the names of values from ``low``
    on. ``is_day``: it and the other such field are both met only where one of them is ``*``."""

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
"""In the order of a schedule."""


def problem(text: str) -> str | None:
    """Why a schedule cannot be read, None if it can."""
    if not text.strip():
        return "is empty"
    if "TZ" in text:
        return f"{text!r} names a time zone, whose place is spec.timeZone"
    if text.startswith("@"):
        return None if text in DESCRIPTORS or _interval(text) else f"{text!r} is not a descriptor"
    parts = text.split()
    if len(parts) != len(FIELDS):
        return f"{text!r} has {len(parts)} fields, not {len(FIELDS)}"
    for part, field in zip(parts, FIELDS, strict=True):
        for item in part.split(","):
            if _span(item, field) is None:
                return f"{item!r} is no {field.name} ({field.low} to {field.high})"
    return None


class Schedule:
    """The times of one schedule. Raises ValueError for one that cannot be read or never comes, or
    for a time zone that is not known here."""

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
                raise ValueError(f"the schedule {text!r} names a day that no month has") from None

    def next_after(self, at: datetime) -> datetime | None:
        """The first time after ``at``; None if there is none for decades."""
        return next(self._after(at), None)

    def last_until(self, after: datetime, until: datetime) -> datetime | None:
        """The last time later than ``after`` and not later than ``until``."""
        if self._every is not None:
            last = self._anchor + (until - self._anchor) // self._every * self._every
            return last if last > max(after, self._anchor) else None
        # The end of the second counts: times are whole seconds.
        begin = until.replace(microsecond=0) + timedelta(seconds=1)
        found = (at for at in self._walk(begin, is_back=True) if at <= until)
        last_one = next(found, None)
        return last_one if last_one is not None and last_one > after else None

    def count(self, after: datetime, until: datetime) -> int:
        """How many times lie in between, at most ``MOST_MISSED + 1``."""
        times = itertools.takewhile(lambda at: at <= until, self._after(after))
        return sum(1 for _ in itertools.islice(times, MOST_MISSED + 1))

    def _after(self, at: datetime) -> Iterator[datetime]:
        if self._every is not None:
            steps = max(0, (at - self._anchor) // self._every)
            for step in itertools.count(steps + 1):
                yield self._anchor + step * self._every
        last = at
        for found in self._walk(at, is_back=False):
            # Times that the clock leaves out fall together where it goes on.
            if found > last:
                last = found
                yield found

    def _walk(self, begin: datetime, *, is_back: bool) -> Iterator[datetime]:
        """Times from ``begin`` on or back, in UTC. Near a change of the clock it begins earlier:
        by the clock alone, a time after the change may look like one before it."""
        if self._follows_time:
            return self._walk_all(begin, is_back=is_back)
        offsets = {
            (begin + step * _CLOCK_CHANGE).astimezone(self._zone).utcoffset() for step in (-1, 0, 1)
        }
        if len(offsets) > 1:
            begin += _CLOCK_CHANGE if is_back else -_CLOCK_CHANGE
        found = cronsim.CronSim(self._fields, begin.astimezone(self._zone), is_back)
        return (at.astimezone(UTC) for at in found)

    def _walk_all(self, begin: datetime, *, is_back: bool) -> Iterator[datetime]:
        """The same for a schedule that follows the time that passes."""
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
        found = cronsim.CronSim(self._fields, begin.astimezone(timezone(offset)), is_back)
        return ((at.astimezone(UTC), offset) for at in found)


@functools.lru_cache(maxsize=1024)
def _offsets(zone: zoneinfo.ZoneInfo, year: int) -> frozenset[timedelta]:
    """All offsets that a zone has from the year before to the year after the next."""
    days = (datetime(year - 1, 1, 1, tzinfo=UTC) + timedelta(days=7 * it) for it in range(4 * 53))
    found = (day.astimezone(zone).utcoffset() for day in days)
    return frozenset(it for it in found if it is not None)


def _interval(text: str) -> timedelta | None:
    """The length of ``@every``: whole seconds, as less would be due at every look."""
    length = text.removeprefix(_EVERY)
    if length == text or length[:1] in ("+", "-"):
        return None
    try:
        found = durations.duration(length)
    except ValueError:
        return None
    return max(timedelta(seconds=1), found - found % timedelta(seconds=1))


def _span(item: str, field: Field) -> range | None:
    """The values of ``*``, ``?``, ``n``, ``n-m``, each with ``/step``; None: it cannot be read."""
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
    # n/step means from n on.
    to = field.high if slash and not dash else last
    return range(first, to + 1, every)


def _value(text: str, field: Field) -> int | None:
    if (found := decoding.number(text)) is not None:
        return found
    name = text.lower()
    return field.names.index(name) + field.low if name in field.names else None


def _plain(part: str, field: Field) -> str:
    """A field in words that cronsim reads as robfig/cron reads the original.

    There, ``*/2`` in a field of days is a list of days and no ``*``; ``3-3/2`` is 3 alone; a day of
    week goes to 6.
    """
    items = part.replace("?", "*").split(",")
    if any(item in ("*", "*/1") for item in items):
        return "*"
    if len(items) == 1 and part[0] in "*?" and not field.is_day:
        return items[0]
    values = {value for item in items for value in _span(item, field) or ()}
    return ",".join(map(str, sorted(values)))
