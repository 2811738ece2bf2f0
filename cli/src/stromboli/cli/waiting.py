"""Waiting for a job, with clock and sleep as arguments."""

import re
from collections.abc import Callable

from stromboli.shared.api import batch

PHASES = (
    "Pending",
    "Aborting",
    "Aborted",
    "Running",
    "Restarting",
    "Completing",
    "Completed",
    "Terminating",
    "Terminated",
    "Failed",
)
ENDS = frozenset({"Completed", "Failed", "Aborted", "Terminated"})
"""Phases that a job does not leave by itself."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
GROWTH = 1.5
"""A short job is seen to end at once; a long one costs half a request a second."""
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(s|m|h|)$")
_UNIT_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class GoneError(Exception):
    """The job was deleted, or another has taken its name."""


def phase_of(job: batch.Job) -> str:
    """The phase; a job that the controller has not seen yet is Pending."""
    return job.status.state.phase or "Pending"


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


def until(
    look: Callable[[], batch.Job | None],
    wanted: frozenset[str],
    timeout_s: float | None,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    report: Callable[[batch.Job], None],
) -> batch.Job:
    """The job once it is in a wanted phase or at an end; ``report`` is told of every look.

    ``look`` returns None when there is no such job. Raises GoneError, or TimeoutError with the
    last phase after ``timeout_s`` seconds of ``clock`` (None: never).
    """
    deadline = None if timeout_s is None else clock() + timeout_s
    pause, uid = FIRST_PAUSE_S, None
    while True:
        job = look()
        if job is None or job.metadata.uid != (uid or job.metadata.uid):
            raise GoneError
        uid = job.metadata.uid
        report(job)
        if phase_of(job) in wanted | ENDS:
            return job
        left = LONGEST_PAUSE_S if deadline is None else deadline - clock()
        if left <= 0:
            raise TimeoutError(phase_of(job))
        sleep(min(pause, left))
        pause = min(GROWTH * pause, LONGEST_PAUSE_S)
