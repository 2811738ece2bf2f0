"""Bars of time as text: when a pod was pending, bound and running."""

from collections.abc import Sequence
from datetime import datetime

WAITING, BOUND, RUNNING, OUTSIDE = ".", "-", "#", " "
LEGEND = f"{WAITING} pending   {BOUND} bound   {RUNNING} running"
Step = tuple[str, datetime]


def bar(steps: Sequence[Step], end: datetime, begin: datetime, until: datetime, width: int) -> str:
    """``width`` characters of [``begin``, ``until``): each shows the step at its middle.

    ``steps``: a character and when it begins, in the order of time; the last one ends at ``end``. A
    step shorter than a character still gets one, unless the next step begins in the same character.
    """
    span_s = max((until - begin).total_seconds(), 1e-6)

    def position(at: datetime) -> int:
        return round((at - begin).total_seconds() / span_s * width)

    cells = [OUTSIDE] * width
    ends = [at for _, at in steps[1:]] + [end]
    for (sign, since), to in zip(steps, ends, strict=True):
        first = min(max(position(since), 0), width - 1)
        last = min(max(position(to), first + 1), width)
        cells[first:last] = sign * (last - first)
    return "".join(cells)
