"""The order of a queue in chunks, one record each, so that no record grows with the queue.

A chunk ends after a PodGroup whose name hashes to a boundary (its CRC-32 is a multiple of
``AVERAGE``), or when it is full. So a PodGroup that joins or leaves usually changes only its own
chunk; chunks of fixed length would all change with every PodGroup that leaves at the front.
(Content-defined chunking; Muthitacharoen et al., "A Low-bandwidth Network File System", SOSP 2001.)

Chunks are numbered from the front. If their number decreases, empty chunks remain. A reader may
briefly see chunks of both the new and the previous order; it computes positions from the chunks
that it has read.
"""

import itertools
import zlib
from collections.abc import Iterator, Sequence

from stromboli.shared.messages import scheduling

AVERAGE = 1024
"""Average number of PodGroups in a chunk."""
MOST_BYTES = 256 * 1024
"""Maximum total length of the names in a chunk."""


def chunks(queue: str, pod_groups: Sequence[str]) -> Iterator[scheduling.QueueOrdered]:
    """The order as messages; one empty chunk for an empty queue. O(PodGroups)."""
    number, start, length = 0, 0, 0
    for at, key in enumerate(pod_groups):
        length += len(key)
        is_last = at + 1 == len(pod_groups)
        if is_last or length >= MOST_BYTES or zlib.crc32(key.encode()) % AVERAGE == 0:
            part = tuple(pod_groups[start : at + 1])
            yield scheduling.QueueOrdered(queue=queue, chunk=number, pod_groups=part)
            number, start, length = number + 1, at + 1, 0
    if number == 0:
        yield scheduling.QueueOrdered(queue=queue, pod_groups=())


class QueueOrders:
    """The orders of all queues, from the chunks that have been read."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[int, tuple[str, ...]]] = {}

    def __iter__(self) -> Iterator[str]:
        """The queues with at least one chunk."""
        return iter(self._queues)

    def put(self, message: scheduling.QueueOrdered) -> None:
        """Add a chunk."""
        self._queues.setdefault(message.queue, {})[message.chunk] = message.pod_groups

    def clear(self) -> None:
        """Remove all chunks."""
        self._queues.clear()

    def changed_chunks(
        self, queue: str, pod_groups: Sequence[str]
    ) -> Iterator[scheduling.QueueOrdered]:
        """The changed chunks, to be published so that the queue's order becomes ``pod_groups``."""
        known = self._queues.get(queue, {})
        number = 0
        for message in chunks(queue, pod_groups):
            number += 1
            if known.get(message.chunk) != message.pod_groups:
                yield message
        for chunk in sorted(known):
            if chunk >= number and known[chunk]:
                yield scheduling.QueueOrdered(queue=queue, chunk=chunk, pod_groups=())

    def in_front(self, queue: str, pod_group: str) -> tuple[str, ...] | None:
        """The PodGroups ahead of this one in the queue; None if its position is not known."""
        front: list[tuple[str, ...]] = []
        for _, part in sorted(self._queues.get(queue, {}).items()):
            if pod_group in part:
                front.append(part[: part.index(pod_group)])
                return tuple(itertools.chain.from_iterable(front))
            front.append(part)
        return None
