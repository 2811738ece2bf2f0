"""A container's output on disk: files named by the offset of their first byte, the oldest deleted.

The size is at most ``keep_bytes`` plus one segment; the last ``keep_bytes`` are always available.
Files are opened relative to a folder's descriptor, so the folder may be outside of the container's
view.

Beside each file is an index of times: pairs of an offset and the time at which the bytes from there
on arrived. Two entries are at least ``TIME_STEP_NS`` apart, and an index is at most as large as its
file may be, so what a container prints cannot make it grow beyond that.
"""

import contextlib
import os
import struct
import time

SEGMENT_BYTES = 8 * 1024 * 1024
KEEP_BYTES = 64 * 1024 * 1024
"""Size of the kept output; the kubelet keeps 50 MB."""
TIME_STEP_NS = 10_000_000
TIME = struct.Struct("<QQ")
"""An entry of the index: offset, and nanoseconds since 1970."""
TIMES = ".times"
"""The suffix of the file name of an index."""


def name_of(offset: int) -> str:
    """Return the name of the file that begins at this offset; names sort like offsets."""
    return f"{offset:020d}"


class Segments:
    """The output files. ``end``: bytes written in total; ``lost``: bytes that the disk rejected."""

    def __init__(
        self, folder: str, keep_bytes: int = KEEP_BYTES, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._keep_bytes = keep_bytes
        self._segment_bytes = segment_bytes
        self._starts: list[int] = []
        self._file = -1
        self._times = -1
        self._time_ns = 0
        self._entries = 0
        self.end = 0
        self.lost = 0
        self._open()

    def write(self, data: bytes) -> None:
        """Append output. Bytes that the disk rejects are counted: a full disk must not stop the
        job."""
        view = memoryview(data)
        while view:
            room = self._starts[-1] + self._segment_bytes - self.end
            if room <= 0:
                self._open()
                continue
            try:
                self.note_time(time.time_ns())
                written = os.write(self._file, view[:room])
            except OSError:
                self.lost += len(view)
                return
            self.end += written
            view = view[written:]
            self._delete_oldest()

    def note_time(self, now_ns: int) -> None:
        """Record the arrival time of the bytes after the current end. Times never decrease, even if
        the clock is set back."""
        if self._entries and now_ns - self._time_ns < TIME_STEP_NS:
            return
        if self._entries * TIME.size >= self._segment_bytes:
            return
        self._time_ns = max(now_ns, self._time_ns)
        os.write(self._times, TIME.pack(self.end, self._time_ns))
        self._entries += 1

    def _open(self) -> None:
        for file in (self._file, self._times):
            if file >= 0:
                os.close(file)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        name = name_of(self.end)
        self._file = os.open(name, flags, 0o600, dir_fd=self._folder)
        self._times = os.open(name + TIMES, flags, 0o600, dir_fd=self._folder)
        self._entries = 0
        self._starts.append(self.end)

    def _delete_oldest(self) -> None:
        while len(self._starts) > 1 and self.end - self._starts[1] >= self._keep_bytes:
            name = name_of(self._starts.pop(0))
            for oldest in (name, name + TIMES):
                with contextlib.suppress(OSError):
                    os.unlink(oldest, dir_fd=self._folder)
