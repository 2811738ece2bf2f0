"""Lines of several logs in the order of their times. Pure.

Kubelets and process nodes write an RFC 3339 time before each line on request. Times of two nodes
are as comparable as their clocks.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

S = TypeVar("S")
_FIRST = datetime.min.replace(tzinfo=UTC)


class TimedLine(msgspec.Struct, frozen=True):
    """A line of a log and its time. ``raw`` includes the time if the log has times; ``text`` does
    not."""

    at: datetime
    raw: str
    text: str


def timed(lines: Iterable[str]) -> Iterator[TimedLine]:
    """The lines of one log with their times, which never go back: a line without a time, or with
    an earlier one, has the time of the line before it."""
    last = _FIRST
    for line in lines:
        time, space, text = line.partition(" ")
        at = _parsed(time) if space else None
        if at is None:
            yield TimedLine(last, line, line)
            continue
        last = max(last, at)
        yield TimedLine(last, line, text)


def merge(logs: Mapping[S, Iterable[str]]) -> Iterator[tuple[S, TimedLine]]:
    """The lines of all logs by time, each with its source; lines with equal times are in the order
    of the sources. Reads one line of each log ahead."""

    def of(source: S, lines: Iterable[str]) -> Iterator[tuple[S, TimedLine]]:
        for line in timed(lines):
            yield source, line

    streams = [of(source, lines) for source, lines in logs.items()]
    return heapq.merge(*streams, key=lambda pair: pair[1].at)


def _parsed(text: str) -> datetime | None:
    if "T" not in text:
        return None
    try:
        parsed_time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed_time if parsed_time.tzinfo is not None else None
