"""Revocable zones: nodes that preemptable pods may use during certain hours of the day."""

import re
from collections.abc import Mapping
from datetime import datetime, time, timedelta
from typing import Any

import msgspec

_RANGE = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
PREFIX = "tdm.revocable-zone."


class Zone(msgspec.Struct, frozen=True):
    """The hours of a zone. An end that is not after the start is on the next day."""

    name: str
    text: str
    start: time
    end: time

    def is_active(self, now: datetime) -> bool:
        """Return whether ``now`` is within the hours, both ends included, in the time zone of
        ``now``.

        Hours that began yesterday count too: a zone from 22:00 to 06:00 is active at 05:00.
        """
        return any(start <= now <= end for start, end in self._hours(now))

    def changes_at(self, now: datetime) -> datetime:
        """Return the next time at which ``is_active`` changes."""
        hours = sorted(self._hours(now))
        current = [end for start, end in hours if start <= now <= end]
        if current:
            return max(current) + timedelta.resolution  # the end is included
        return next(start for start, _ in hours if start > now)

    def _hours(self, now: datetime) -> list[tuple[datetime, datetime]]:
        """Return the intervals that begin yesterday, today and tomorrow."""
        hours = []
        for days in (-1, 0, 1):
            day = now.date() + timedelta(days=days)
            start = datetime.combine(day, self.start, now.tzinfo)
            end = datetime.combine(day, self.end, now.tzinfo)
            hours.append((start, end + timedelta(days=1) if start >= end else end))
        return hours


def zones(arguments: Mapping[str, Any], complaints: list[str]) -> dict[str, Zone]:
    """Return the zones in a plugin's arguments. A zone that cannot be read is reported."""
    zone_by_name = {}
    for key in sorted(arguments):
        if key.startswith(PREFIX):
            name = key.removeprefix(PREFIX)
            try:
                zone_by_name[name] = _zone(name, arguments[key])
            except ValueError as error:
                complaints.append(f"plugin tdm: arguments.{key}: {error}")
    return zone_by_name


def _zone(name: str, text: object) -> Zone:
    match = _RANGE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            f"{text!r} is not a range of hours: write HH:MM-HH:MM, such as 22:00-06:00"
        )
    hour, minute, end_hour, end_minute = (int(number) for number in match.groups())
    return Zone(name, match.group(), time(hour, minute), time(end_hour, end_minute))
