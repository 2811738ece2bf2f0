"""When a pending job is expected to start, as text. Pure."""

from datetime import datetime

from stromboli.cli.render import output
from stromboli.shared.api.views.expected_start import ExpectedStart

BEYOND = "7d"
"""How far a forecast extends into the future."""
HEADER = "STARTS IN"


def sentence(start: ExpectedStart, now: datetime) -> str:
    """The expected start, with the age of the forecast: ``in 5m to 20m (as of 30s ago)``."""
    age = f"(as of {output.age(start.at, now)} ago)"
    match start.answer:
        case "can-never-fit":
            return f"can never fit {age}"
        case "blocked-by-quota":
            return f"blocked by quota: its queue does not admit it with its present limits {age}"
        case "not-within-7-days":
            return f"not within 7 days {age}"
    begin, end = _range(start, now)
    if end == "0s":
        return f"expected now {age}"
    if begin == end:
        return f"in {end} {age}"
    return f"in {begin} to {end} {age}"


def cell(start: ExpectedStart | None, now: datetime) -> str:
    """The expected start in a column under ``HEADER``; empty if there is none."""
    if start is None:
        return ""
    match start.answer:
        case "can-never-fit":
            return "never"
        case "blocked-by-quota":
            return "quota"
        case "not-within-7-days":
            return f">{BEYOND}"
    begin, end = _range(start, now)
    return end if begin == end else f"{begin} to {end}"


def _range(start: ExpectedStart, now: datetime) -> tuple[str, str]:
    """The 10 % and 90 % quantiles as durations from now."""

    def left(at: datetime | None) -> str:
        if at is None:
            return f">{BEYOND}"
        return output.duration(now, max(at, now))

    return left(start.p10), left(start.p90)
