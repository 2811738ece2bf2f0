"""The lines of a container's output with the times at which they arrived.

``launcher.segments`` writes the times. A line has the time of its first byte, with a precision of
10 ms.
"""

import bisect
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stromboli.embedded.processes.launcher import segments

SECOND_NS = 1_000_000_000
_EPOCH = datetime.fromtimestamp(0, UTC)
_MICROSECOND = timedelta(microseconds=1)
TIME_BYTES = segments.TIME.size


class TimedLines:
    """Selects the lines of consecutive chunks by time, and prefixes them with their time."""

    def __init__(self, folder: Path, *, with_time: bool, since: datetime | None) -> None:
        self._folder = folder
        self._with_time = with_time
        self._since_us = None if since is None else (since - _EPOCH) // _MICROSECOND
        self._is_line_start = True
        self._is_dropped = False
        self._segment = -1
        self._offsets: list[int] = []
        self._times: list[int] = []

    def select(self, position: int, chunk: bytes) -> bytes:
        """Return the lines of a chunk at this offset that are selected, each with its time."""
        self._load(position)
        pieces, begin = [], 0
        while begin < len(chunk):
            end = chunk.find(b"\n", begin) + 1 or len(chunk)
            if self._is_line_start:
                at = self._time_of(position + begin)
                self._is_dropped = self._since_us is not None and _micros(at) < self._since_us
                if self._with_time and not self._is_dropped:
                    pieces.append(_formatted(at))
            if not self._is_dropped:
                pieces.append(chunk[begin:end])
            self._is_line_start = chunk[end - 1 : end] == b"\n"
            begin = end
        return b"".join(pieces)

    def _time_of(self, offset: int) -> int:
        """Return when the byte at the offset arrived, in nanoseconds. Without an index, as in a
        folder of an earlier version, it is the time of the last write to the file."""
        position = bisect.bisect_right(self._offsets, offset) - 1
        return self._times[position] if position >= 0 else self._last_write_ns()

    def _load(self, position: int) -> None:
        """Read the index entries added since the last chunk. A chunk is part of one segment, and
        its entries are written before its bytes."""
        names = (path.name for path in self._folder.iterdir())
        starts = (int(name) for name in names if name.isdecimal())
        segment = max((start for start in starts if start <= position), default=0)
        if segment != self._segment:
            self._segment, self._offsets, self._times = segment, [], []
        try:
            with (self._folder / (segments.name_of(segment) + segments.TIMES)).open("rb") as file:
                file.seek(len(self._offsets) * TIME_BYTES)
                raw = file.read()
        except FileNotFoundError:
            return
        for offset, at_ns in segments.TIME.iter_unpack(raw[: len(raw) // TIME_BYTES * TIME_BYTES]):
            self._offsets.append(offset)
            self._times.append(at_ns)

    def _last_write_ns(self) -> int:
        try:
            return (self._folder / segments.name_of(self._segment)).stat().st_mtime_ns
        except FileNotFoundError:
            return 0


def _micros(at_ns: int) -> int:
    """Round to a microsecond, as decoders of times do, so that ``since`` with the time of a line
    selects that line."""
    return (at_ns + 500) // 1000


def _formatted(at_ns: int) -> bytes:
    """Format a time as kubelets do, with nine digits."""
    seconds, rest = divmod(at_ns, SECOND_NS)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{rest:09d}Z ".encode()
