"""Splits a stream of chunks into lines."""


class LineSplitter:
    """Splits chunks at newlines. O(bytes) for any chunking: an object of several MB arrives in many
    chunks, and aiohttp's ``readline`` rejects lines that exceed its buffer.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their newlines; empty lines are left out.

        Bytes after the last newline are buffered. They are dropped when the stream ends: a
        truncated line is not an event.
        """
        first, *rest = chunk.split(b"\n")
        self._parts.append(first)
        if not rest:
            return []
        whole = [b"".join(self._parts), *rest[:-1]]
        self._parts = [rest[-1]]
        return [line for line in whole if line]
