"""Options for an interval and for labels, and the formats of times."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from stromboli.cli import parsing

Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="Start: 2026-01-31, 2026-01-31T12:00:00Z, or 24h ago: 24h."
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
    """A date or time, UTC if it has no zone, or a duration before ``now``; None for empty text.
    Raises BadParameter."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - timedelta(seconds=parsing.duration_s(text))
        except (ValueError, OverflowError):
            expected = "write 2026-01-31, 2026-01-31T12:00:00Z or 24h"
            raise typer.BadParameter(
                f"{text!r} is not a time; {expected}", param_hint=option
            ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def labels(text: str) -> dict[str, str]:
    """``team=vision,stage=test`` as labels. Raises BadParameter for any other selector."""
    found = {}
    for word in (part.strip() for part in text.split(",") if part.strip()):
        key, sign, value = word.partition("=")
        if not sign or not key or "!" in key or value.startswith("="):
            raise typer.BadParameter(
                f"{word!r} is not KEY=VALUE; the history selects by equal labels",
                param_hint="--selector",
            )
        found[key] = value
    return found


def short(at: datetime) -> str:
    """A time in a table, UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def exact(at: datetime) -> str:
    """A time for programs: RFC 3339."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
