"""Durations as users write them in annotations and arguments: ``90s``, ``5m``, ``1h30m``."""

import functools
import re
from datetime import datetime, timedelta
from fractions import Fraction

_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
LONGEST_S = 1000 * 365 * 24 * 3600
"""Longest accepted duration, a thousand years: times that far ahead can be computed and are never
reached."""
LONGEST_TEXT = 100
_SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}


@functools.lru_cache(1024)  # policies are read in each reconcile of a job
def duration(text: str) -> timedelta:
    """Parse a duration, with a precision of one microsecond.

    Raises ValueError, which names the text and the accepted form.
    """
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return timedelta()
    if len(rest) > LONGEST_TEXT:  # checked first, since the search takes quadratic time
        raise ValueError(f"{rest[:LONGEST_TEXT]!r}... is longer than any accepted duration")
    parts = _PART.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise ValueError(
            f"{text!r} is not a duration: write numbers with one of the units "
            f"{' '.join(sorted(set(_SECONDS) - {'μs'}))}, such as 90s or 1h30m"
        )
    seconds = sum(Fraction(number.rstrip(".")) * _SECONDS[unit] for number, unit in parts)
    if seconds > LONGEST_S:
        raise ValueError(f"{text!r} is longer than a thousand years")
    return timedelta(microseconds=sign * int(seconds * 10**6))


def later(at: datetime, seconds: int) -> datetime:
    """``at`` plus ``seconds`` (which may be negative), limited to a thousand years, since specs may
    contain any number and datetime has a limited range.
    """
    return at + timedelta(seconds=max(-LONGEST_S, min(seconds, LONGEST_S)))
