"""Durations as users write them, the meaning that all services share, and times after them."""

from datetime import UTC, datetime, timedelta

from stromboli.shared.formats.durations import duration as duration

_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def after(moment: datetime, span: timedelta) -> datetime:
    """The time so much later; the calendar's first or last for what is beyond it. Objects may bear
    any time that a text can say."""
    try:
        return moment + span
    except OverflowError:
        return _LAST if span > timedelta(0) else _FIRST
