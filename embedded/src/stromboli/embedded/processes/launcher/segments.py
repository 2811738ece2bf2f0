"""A container's output on disk: files named by the offset of their first byte, the oldest deleted.

The size is at most ``keep_bytes`` plus one segment; the last ``keep_bytes`` are always available.
Files are opened relative to a folder's descriptor, so the folder may be outside of the container's
view.
"""

import contextlib
import os

SEGMENT_BYTES = 8 * 1024 * 1024
KEEP_BYTES = 64 * 1024 * 1024
"""Size of the kept output; the kubelet keeps 50 MB."""


def name_of(offset: int) -> str:
    """Return the name of the file that begins at this offset; names sort like offsets."""
    return f"{offset:020d}"


class Segments:
    """The output files. ``end``: bytes written in total; ``lost``: those that the disk rejected."""

    def __init__(
        self, folder: str, keep_bytes: int = KEEP_BYTES, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._keep_bytes = keep_bytes
        self._segment_bytes = segment_bytes
        self._starts: list[int] = []
        self._file = -1
        self.end = 0
        self.lost = 0
        self._open()

    def write(self, data: bytes) -> None:
        """Append. Bytes that the disk rejects are counted: a full disk must not stop the job."""
        view = memoryview(data)
        while view:
            room = self._starts[-1] + self._segment_bytes - self.end
            if room <= 0:
                self._open()
                continue
            try:
                written = os.write(self._file, view[:room])
            except OSError:
                self.lost += len(view)
                return
            self.end += written
            view = view[written:]
            self._release_kind()

    def _open(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(name_of(self.end), flags, 0o600, dir_fd=self._folder)
        self._starts.append(self.end)

    def _release_kind(self) -> None:
        while len(self._starts) > 1 and self.end - self._starts[1] >= self._keep_bytes:
            with contextlib.suppress(OSError):
                os.unlink(name_of(self._starts.pop(0)), dir_fd=self._folder)
