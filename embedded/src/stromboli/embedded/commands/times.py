"""Times as options take them."""

from datetime import datetime


def parse_time(text: str) -> datetime:
    """Parse a time with its time zone. Raises ValueError."""
    try:
        parsed_time = datetime.fromisoformat(text)
    except ValueError:
        parsed_time = None
    if parsed_time is None or parsed_time.tzinfo is None:
        what = "no time" if parsed_time is None else "a time without a zone"
        raise ValueError(f"{text!r} is {what}; write it as 2026-01-31T12:00:00Z")
    return parsed_time
