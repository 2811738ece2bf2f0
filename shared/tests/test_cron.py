"""Schedules: read as robfig/cron reads them, the same times forwards and backwards, and sane when
clocks change."""

import itertools
import zoneinfo
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stromboli.shared.formats import cron

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]
)
INSTANTS = st.integers(0, 2 * 365 * 24 * 3600).map(lambda it: NEW_YEAR + timedelta(seconds=it))


def items(field: cron.Field) -> st.SearchStrategy[str]:
    """One item of a field: a star, a number, a range, with a step or without."""
    numbers = st.integers(field.low, field.high)
    spans = st.one_of(
        st.sampled_from(["*", "?"]),
        numbers.map(str),
        st.tuples(numbers, numbers).map(lambda it: f"{min(it)}-{max(it)}"),
    )
    return st.builds(
        lambda span, step: span if step is None else f"{span}/{step}",
        spans,
        st.none() | st.integers(1, 40),
    )


FIELDS = [st.lists(items(it), min_size=1, max_size=2).map(",".join) for it in cron.FIELDS]
EXPRESSIONS = st.tuples(*FIELDS).map(" ".join)


def meant(part: str, field: cron.Field) -> set[int]:
    """What a field means, value by value, after robfig/cron's documentation."""
    found = set()
    for item in part.split(","):
        span, _, step = item.partition("/")
        if span in ("*", "?"):
            low, high = field.low, field.high
        else:
            low = int(span.split("-")[0])
            high = int(span.split("-")[-1])
            if step and "-" not in span:
                high = field.high
        found |= {it for it in range(low, high + 1) if (it - low) % int(step or 1) == 0}
    return found


def is_star(part: str) -> bool:
    return any(item in ("*", "?", "*/1", "?/1") for item in part.split(","))


class Meant:
    """A schedule according to its documentation, evaluated minute by minute."""

    def __init__(self, text: str) -> None:
        parts = text.split()
        fields = [meant(part, field) for part, field in zip(parts, cron.FIELDS, strict=True)]
        self._minutes, self._hours, self._days, self._months, self._weekdays = fields
        self._both = is_star(parts[2]) or is_star(parts[4])

    def is_day(self, at: datetime) -> bool:
        if at.month not in self._months:
            return False
        named = (at.day in self._days, (at.weekday() + 1) % 7 in self._weekdays)
        return all(named) if self._both else any(named)

    def fits(self, at: datetime) -> bool:
        return at.minute in self._minutes and at.hour in self._hours and self.is_day(at)


def times(read: cron.Schedule, begin: datetime, end: datetime) -> list[datetime]:
    """One time after the other."""
    found = []
    at = read.next_after(begin)
    while at is not None and at <= end:
        found.append(at)
        at = read.next_after(at)
    return found


def schedule(text: str, zone: str | None = None, anchor: datetime = NEW_YEAR) -> cron.Schedule:
    return cron.Schedule(text, zone, anchor)


@given(EXPRESSIONS, INSTANTS)
@example("0 0 * * 2/5", NEW_YEAR)
@example("0 0 */2 * 1", NEW_YEAR)
@example("3-3/2 * * * *", NEW_YEAR)
@example("0 0 31 2,4 *", NEW_YEAR)
def test_the_times_are_those_minutes_that_the_fields_name(text: str, begin: datetime) -> None:
    wanted = Meant(text)
    try:
        read = schedule(text)
    except ValueError:
        leap_year = [datetime(2028, 1, 1, tzinfo=UTC) + timedelta(days=it) for it in range(366)]
        assert not any(wanted.is_day(at) for at in leap_year)
        return
    end = begin + timedelta(days=1)
    first = begin.replace(second=0) + timedelta(minutes=1)
    minutes = [first + timedelta(minutes=it) for it in range(1440)]
    assert times(read, begin, end) == [at for at in minutes if at <= end and wanted.fits(at)]


@given(
    EXPRESSIONS | st.sampled_from(["@every 7m", "@every 90s", "30 2 * * *", "0,30 1-3 * * *"]),
    ZONES,
    INSTANTS,
    st.integers(0, 5 * 3600),
)
@example("30 2 * * *", "Europe/Berlin", datetime(2026, 10, 25, 1, 10, tzinfo=UTC), 300)
@example("0,30 2 * * *", "Europe/Berlin", datetime(2026, 3, 29, tzinfo=UTC), 7200)
def test_the_last_time_until_now_is_the_last_of_the_sequence(
    text: str, zone: str, begin: datetime, length_s: int
) -> None:
    try:
        read = schedule(text, zone)
    except ValueError:
        return
    until = begin + timedelta(seconds=length_s)
    found = times(read, begin, until)
    assert found == sorted(set(found))
    assert read.last_until(begin, until) == (found[-1] if found else None)
    assert read.count(begin, until) == min(len(found), cron.MOST_MISSED + 1)


CHANGES = {
    "Australia/Lord_Howe": ("2026-04-04", "2026-10-03"),
    "Europe/Berlin": ("2026-03-28", "2026-10-24"),
    "America/New_York": ("2026-03-07", "2026-10-31"),
    "Africa/Casablanca": ("2026-02-14", "2026-03-21"),
}
"""Zones -> days within two of which their clocks are set, by an hour or half of one."""


@pytest.mark.parametrize("text", ["*/20 2 * * *", "*/20 1 * * *", "*/7 * * * *", "5 */2 * * *"])
@pytest.mark.parametrize("zone", CHANGES)
def test_a_schedule_of_elapsed_time_has_each_matching_minute(text: str, zone: str) -> None:
    """Also where the clock is set by half an hour, as on Lord Howe Island."""
    wanted = Meant(text)
    for day in CHANGES[zone]:
        begin = datetime.fromisoformat(f"{day}T00:00:00+00:00")
        minutes = [begin + timedelta(minutes=it) for it in range(1, 2 * 1440 + 1)]
        fitting = [at for at in minutes if wanted.fits(at.astimezone(zoneinfo.ZoneInfo(zone)))]
        read = schedule(text, zone)
        assert times(read, begin, minutes[-1]) == fitting
        backwards, last = [], minutes[-1]
        while (found := read.last_until(begin, last)) is not None:
            backwards.append(found)
            last = found - timedelta(seconds=1)
        assert backwards[::-1] == fitting


@pytest.mark.parametrize(
    ("text", "day", "wanted"),
    [
        ("30 2 * * *", "2026-03-29", ["01:00"]),
        ("0,30 2 * * *", "2026-03-29", ["01:00"]),
        ("30 2 * * *", "2026-10-25", ["00:30"]),
        ("*/30 2 * * *", "2026-10-25", ["00:00", "00:30", "01:00", "01:30"]),
        ("0 * * * *", "2026-03-29", ["00:00", "01:00", "02:00"]),
    ],
)
def test_a_fixed_time_of_day_runs_once_when_the_clock_changes(
    text: str, day: str, wanted: list[str]
) -> None:
    """In Berlin, 2:00 to 3:00 does not exist in March and occurs twice in October."""
    begin = datetime.fromisoformat(f"{day}T00:00:00+00:00") - timedelta(seconds=1)
    found = times(schedule(text, "Europe/Berlin"), begin, begin + timedelta(hours=2, seconds=2))
    assert [f"{at:%H:%M}" for at in found] == wanted


def test_an_interval_counts_from_its_anchor_in_whole_seconds() -> None:
    anchor = NEW_YEAR + timedelta(seconds=5, microseconds=70)
    read = schedule("@every 90.7s", anchor=anchor)
    found = itertools.islice(times(read, anchor, anchor + timedelta(minutes=10)), 3)
    assert [at - NEW_YEAR for at in found] == [
        timedelta(seconds=5 + 90 * number) for number in (1, 2, 3)
    ]
    assert read.last_until(NEW_YEAR, anchor + timedelta(seconds=89)) is None
    assert schedule("@every 10ms").next_after(NEW_YEAR) == NEW_YEAR + timedelta(seconds=1)


@pytest.mark.parametrize(("name", "plain"), cron.DESCRIPTORS.items())
def test_a_descriptor_equals_five_fields(name: str, plain: str) -> None:
    assert schedule(name).next_after(NEW_YEAR) == schedule(plain).next_after(NEW_YEAR)


@pytest.mark.parametrize("text", ["0 0 30 2 *", "", "* * * *", "@every -1h", "0 0 L * *", "@often"])
def test_an_invalid_schedule_is_rejected_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="the schedule"):
        schedule(text)


def test_an_unknown_time_zone_is_rejected_with_its_name() -> None:
    with pytest.raises(ValueError, match="Mars/Base"):
        schedule("@daily", "Mars/Base")


def test_times_in_a_zone_are_instants() -> None:
    noon = schedule("0 12 * * *", "Asia/Kathmandu").next_after(NEW_YEAR)
    assert noon == datetime(2026, 1, 1, 12, tzinfo=ZoneInfo("Asia/Kathmandu"))
    assert noon is not None
    assert noon.tzinfo is UTC
