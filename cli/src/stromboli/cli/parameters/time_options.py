"""Options for an interval and for labels, and the formats of times."""

import contextlib
import re
from datetime import UTC, datetime, timedelta
from datetime import time as clock
from typing import Annotated

import typer

from stromboli.cli.parameters import parsing

_DAYS_AGO = {"today": 0, "yesterday": 1}
_CLOCK = re.compile(r"\d\d:\d\d(:\d\d)?")

Since = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Start, UTC: 2026-01-31, 2026-01-31T12:00:00Z, 22:00, today, yesterday, now, or "
        "how long ago: 24h, 7d.",
    ),
]
Until = Annotated[
    str, typer.Option("--until", metavar="TIME", help="End, written like --since. [default: now]")
]
Labels = Annotated[
    str,
    typer.Option("--selector", "-l", metavar="LABELS", help="Only jobs with labels: team=vision."),
]


def time(text: str, now: datetime, option: str) -> datetime | None:
    """A date or time, UTC if it has no zone, ``now``, or a duration before ``now``; None for empty
    text. ``22:00`` is the latest one before ``now``. Raises BadParameter."""
    if not text:
        return None
    if text.lower() == "now":
        return now
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if (days := _DAYS_AGO.get(text.lower())) is not None:
        return midnight - timedelta(days=days)
    if _CLOCK.fullmatch(text):
        with contextlib.suppress(ValueError):
            parsed_time = datetime.combine(midnight, clock.fromisoformat(text), UTC)
            return parsed_time if parsed_time <= now else parsed_time - timedelta(days=1)
    try:
        parsed_time = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - timedelta(seconds=parsing.duration_s(text))
        except (ValueError, OverflowError):
            expected = "write 2026-01-31, 2026-01-31T12:00:00Z, 22:00, yesterday, 24h or 7d"
            raise typer.BadParameter(
                f"{text!r} is not a time; {expected}", param_hint=option
            ) from None
    return parsed_time if parsed_time.tzinfo is not None else parsed_time.replace(tzinfo=UTC)


def labels(text: str) -> dict[str, str]:
    """``team=vision,stage=test`` as labels. Raises BadParameter for any other selector."""
    label_values = {}
    for word in (part.strip() for part in text.split(",") if part.strip()):
        key, sign, value = word.partition("=")
        if not sign or not key or "!" in key or value.startswith("="):
            raise typer.BadParameter(
                f"{word!r} is not KEY=VALUE; the history supports no other selectors",
                param_hint="--selector",
            )
        label_values[key] = value
    return label_values


def short(at: datetime) -> str:
    """A time in a table, UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def exact(at: datetime) -> str:
    """A time for programs: RFC 3339."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
