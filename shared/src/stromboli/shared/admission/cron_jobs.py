"""What is wrong with a CronJob. Behaviour: admission reference 3.

A schedule is five fields or a descriptor, in the grammar that users of Kubernetes know (the
standard parser of robfig/cron): ``*``, ``?``, numbers, ranges, steps, lists, names of months and
days, ``@daily`` and its like, ``@every 1h30m``.
"""

import re
import zoneinfo
from collections.abc import Iterator

from stromboli.shared.admission import naming
from stromboli.shared.api.flow import CronJob
from stromboli.shared.messages.admission import Violation

LONGEST_NAME = 52
"""Its jobs are called ``<name>-<minute>``, eleven characters more, and their pods after them."""
DESCRIPTORS = frozenset(
    {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of week", 0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
"""Name, lowest and highest value, names of values; in the order of a schedule."""
_EVERY = re.compile(r"^@every (([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$")
_ZONE_PART = re.compile(r"^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$")
SCHEDULE_EXPECTED = 'five fields such as "*/5 * * * *", or one of @hourly, @daily, @every 1h30m'
ZONE_EXPECTED = "a name of the time zone database such as Europe/Berlin, or leave it out"


def violations(made: CronJob) -> Iterator[Violation]:
    """Everything wrong with a CronJob. The job that it makes is judged when it is made."""
    name = made.metadata.name
    if not naming.is_subdomain(name):
        yield Violation(
            path="metadata.name",
            reason=f"{name!r} is not a name",
            expected=naming.SUBDOMAIN_EXPECTED,
        )
    if len(name) > LONGEST_NAME:
        yield Violation(
            path="metadata.name",
            reason=f"has {len(name)} characters, and jobs get eleven more",
            expected=f"at most {LONGEST_NAME} characters",
        )
    if reason := schedule_problem(made.spec.schedule):
        yield Violation(path="spec.schedule", reason=reason, expected=SCHEDULE_EXPECTED)
    if made.spec.time_zone is not None and (reason := zone_problem(made.spec.time_zone)):
        yield Violation(path="spec.timeZone", reason=reason, expected=ZONE_EXPECTED)


def schedule_problem(text: str) -> str | None:
    """Why a schedule cannot be read, None if it can."""
    if not text.strip():
        return "is empty"
    if "TZ" in text:
        return f"{text!r} names a time zone, whose place is spec.timeZone"
    if text.startswith("@"):
        known = text in DESCRIPTORS or _EVERY.match(text)
        return None if known else f"{text!r} is not a descriptor"
    parts = text.split()
    if len(parts) != len(FIELDS):
        return f"{text!r} has {len(parts)} fields, not {len(FIELDS)}"
    for part, (name, low, high, names) in zip(parts, FIELDS, strict=True):
        for item in part.split(","):
            if not _is_readable(item, low, high, names):
                return f"{item!r} is no {name} ({low} to {high})"
    return None


def zone_problem(text: str) -> str | None:
    """Why a time zone cannot be used, None if it can. Reads the time zone database."""
    if not text:
        return "is empty"
    if text.lower() == "local":
        return "Local is another time on every machine"
    if any(part in (".", "..") or not _ZONE_PART.match(part) for part in text.split("/")):
        return f"{text!r} is not a time zone's name"
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return f"there is no time zone {text!r}"
    return None


def _is_readable(item: str, low: int, high: int, names: dict[str, int]) -> bool:
    """Whether ``*``, ``?``, ``n``, ``n-m``, each with ``/step``, stands in the field."""
    span, slash, step = item.partition("/")
    if slash and (not step.isascii() or not step.isdigit() or int(step) == 0):
        return False
    if span in ("*", "?"):
        return True
    begin, dash, end = span.partition("-")
    first = _value(begin, names)
    last = _value(end, names) if dash else first
    return first is not None and last is not None and low <= first <= last <= high


def _value(text: str, names: dict[str, int]) -> int | None:
    if text.isascii() and text.isdigit():
        return int(text)
    return names.get(text.lower())
