"""Parses phases, durations and amounts of the command line. Pure."""

from stromboli.client.phases import PHASES
from stromboli.shared.formats import durations, units

SHORT_PHASES = {
    "pd": ("Pending",),
    "r": ("Running",),
    "s": ("Aborting", "Aborted"),
    "suspended": ("Aborting", "Aborted"),
    "rq": ("Restarting",),
    "cg": ("Completing", "Terminating"),
    "cd": ("Completed",),
    "f": ("Failed",),
    "ca": ("Terminated",),
}
"""Slurm's codes of job states -> phases."""


def phases(text: str) -> frozenset[str]:
    """``Completed,failed`` or ``CD,F`` as phases. Raises ValueError that names the known ones."""
    known = {phase.lower(): (phase,) for phase in PHASES} | SHORT_PHASES
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    if unknown := [part for part in wanted if part.lower() not in known]:
        raise ValueError(f"{unknown[0]!r} is not a phase; use one of {', '.join(PHASES)}")
    return frozenset(phase for part in wanted for phase in known[part.lower()])


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


def amount(text: str) -> str:
    """A quantity that is not negative, unchanged: ``500m``. Raises ValueError."""
    if units.quantity(text) < 0:
        raise ValueError(f"{text} is negative")
    return text


def amounts(text: str) -> dict[str, str]:
    """``cpu=1,memory=1Gi`` as a resource list. Raises ValueError for any other shape."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        if not name or not equals:
            raise ValueError(f"{part.strip()!r} is not a resource; write cpu=1,memory=1Gi")
        if name in found:
            raise ValueError(f"{name} is given twice")
        try:
            found[name] = amount(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return found
