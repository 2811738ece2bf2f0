"""Durations in configurations and annotations: parses them, and adds them to times."""

from datetime import UTC, datetime, timedelta

from stromboli.shared.formats.durations import duration as duration

_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def after(moment: datetime, span: timedelta) -> datetime:
    """``moment + span``, limited to the first and last second that datetime can represent, because
    objects may contain any time. A time after the last second would round to the year 10000 when it
    is converted to a float.
    """
    try:
        return max(_FIRST, min(moment + span, _LAST))
    except OverflowError:
        return _LAST if span > timedelta(0) else _FIRST
