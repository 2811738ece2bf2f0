"""Lines out of a stream of chunks."""


class LineSplitter:
    """Splits chunks at newlines. O(bytes) whatever the chunking: an object of several MB arrives
    in many chunks, and aiohttp's own ``readline`` refuses lines above its buffer."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their newlines; empty lines are left out.

        What follows the last newline waits for more. It is lost with the stream, and should be: a
        line cut short is no event.
        """
        first, *rest = chunk.split(b"\n")
        self._parts.append(first)
        if not rest:
            return []
        whole = [b"".join(self._parts), *rest[:-1]]
        self._parts = [rest[-1]]
        return [line for line in whole if line]
