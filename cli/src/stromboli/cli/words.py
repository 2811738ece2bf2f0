"""Phases and durations as people write them. Pure."""

from stromboli.client.phases import PHASES
from stromboli.shared import durations


def phases(text: str) -> frozenset[str]:
    """``Completed,failed`` as phases. Raises ValueError that names the known ones."""
    known = {phase.lower(): phase for phase in PHASES}
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    if unknown := [part for part in wanted if part.lower() not in known]:
        raise ValueError(f"{unknown[0]!r} is not a phase; there are {', '.join(PHASES)}")
    return frozenset(known[part.lower()] for part in wanted)


def duration_s(text: str) -> float:
    """``30`` seconds, or a duration such as ``30s``, ``1.5h`` or ``1h30m``. Raises ValueError."""
    written = text.strip()
    if written.replace(".", "", 1).isdecimal():
        written += "s"
    try:
        found_s = durations.duration(written).total_seconds()
    except ValueError:
        found_s = -1.0
    if found_s < 0:
        raise ValueError(f"{text!r} is not a duration; write 30s, 5m or 1h30m")
    return found_s
