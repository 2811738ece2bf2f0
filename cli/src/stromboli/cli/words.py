"""Phases and durations as people write them. Pure."""

import re

from stromboli.client.phases import PHASES

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(s|m|h|)$")
_UNIT_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def phases(text: str) -> frozenset[str]:
    """``Completed,failed`` as phases. Raises ValueError that names the known ones."""
    known = {phase.lower(): phase for phase in PHASES}
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    if unknown := [part for part in wanted if part.lower() not in known]:
        raise ValueError(f"{unknown[0]!r} is not a phase; there are {', '.join(PHASES)}")
    return frozenset(known[part.lower()] for part in wanted)


def duration_s(text: str) -> float:
    """``30``, ``30s``, ``5m`` or ``1.5h`` in seconds. Raises ValueError."""
    match = _DURATION.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 30s, 5m or 1.5h")
    return float(match[1]) * _UNIT_S[match[2]]
