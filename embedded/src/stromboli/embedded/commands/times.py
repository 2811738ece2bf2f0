"""Parses the times that options take."""

from datetime import datetime


def parse_time(text: str) -> datetime:
    """Parse a time with its time zone. Raises ValueError."""
    try:
        parsed_time = datetime.fromisoformat(text)
    except ValueError:
        parsed_time = None
    if parsed_time is None or parsed_time.tzinfo is None:
        what = "is not a time" if parsed_time is None else "has no time zone"
        raise ValueError(f"{text!r} {what}; write it as 2026-01-31T12:00:00Z")
    return parsed_time
