"""Reads the output of a container, during the run or later. See ``launcher.segments``."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path

from stromboli.embedded.processes.output_times import TimedLines

CHUNK_BYTES = 256 * 1024


class Output:
    """The output of one run, which may still grow."""

    def __init__(self, folder: Path, *, is_over: bool = False) -> None:
        self._folder = folder
        self._is_over = is_over
        self._changed = asyncio.Event()

    def grow(self, end_bytes: int) -> None:
        """Wake readers: ``end_bytes`` bytes have been written so far."""
        self._wake()

    def end(self) -> None:
        """Mark the output as complete."""
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def chunks(
        self,
        *,
        follow: bool,
        tail_lines: int | None,
        timestamps: bool = False,
        since: datetime | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the kept output, from its beginning or its last lines; with ``follow`` until the
        end. ``timestamps``: before each line the time at which it began to arrive; ``since``: only
        lines from then on.

        A separate line reports output that was deleted before it could be read.
        """
        lines = None
        if timestamps or since is not None:
            lines = TimedLines(self._folder, with_time=timestamps, since=since)
        position = self._tail(tail_lines) if tail_lines is not None else 0
        while True:
            is_last, changed = self._is_over or not follow, self._changed
            while block := await asyncio.to_thread(self._read, position):
                start, chunk = block
                if start > position:
                    lost = f"[{start - position} earlier bytes are no longer kept]\n".encode()
                    yield lost if lines is None else lines.select(start, lost)
                position = start + len(chunk)
                yield chunk if lines is None else lines.select(start, chunk)
            if is_last:
                return
            await changed.wait()

    def tail(self, limit_bytes: int, lines: int) -> str:
        """Return the last lines, within a number of bytes."""
        position = max(self._tail(lines), self._end() - limit_bytes)
        block = self._read(position)
        return block[1].decode(errors="replace") if block else ""

    def _starts(self) -> list[int]:
        try:
            names = (path.name for path in self._folder.iterdir())
            return sorted(int(name) for name in names if name.isdecimal())
        except OSError:
            return []

    def _read(self, position: int) -> tuple[int, bytes] | None:
        """Return (offset, bytes) at the position or, if deleted, at the first kept byte."""
        starts = self._starts()
        before = [start for start in starts if start <= position]
        behind = [start for start in starts if start > position]
        for start in [*before[-1:], *behind]:
            try:
                with (self._folder / f"{start:020d}").open("rb") as segment:
                    offset = max(position - start, 0)
                    segment.seek(offset)
                    if chunk := segment.read(CHUNK_BYTES):
                        return start + offset, chunk
            except FileNotFoundError:
                continue
        return None

    def _end(self) -> int:
        starts = self._starts()
        if not starts:
            return 0
        return starts[-1] + (self._folder / f"{starts[-1]:020d}").stat().st_size

    def _tail(self, lines: int) -> int:
        """Return the offset of the last ``lines`` lines; an unfinished line counts as one."""
        position = end = self._end()
        first = (self._starts() or [0])[0]
        missing = lines + (self._slice(end - 1, end) == b"\n" if end > first else 0)
        while position > first and missing:
            begin = max(position - CHUNK_BYTES, first)
            data = self._slice(begin, position)
            if data.count(b"\n") >= missing:
                index = len(data)
                for _ in range(missing):
                    index = data.rindex(b"\n", 0, index)
                return begin + index + 1
            missing -= data.count(b"\n")
            position = begin
        return first if lines else end

    def _slice(self, begin: int, end: int) -> bytes:
        data = b""
        while begin + len(data) < end and (block := self._read(begin + len(data))):
            if block[0] != begin + len(data):
                break
            data += block[1]
        return data[: end - begin]
