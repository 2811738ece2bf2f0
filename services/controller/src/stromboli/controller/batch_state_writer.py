"""Writes the event history to ``batch.state`` in rounds; see ``core.store.batch_state``."""

import asyncio
import contextlib
import itertools
from collections.abc import Mapping

import msgspec
import structlog

from stromboli.controller import isolation
from stromboli.controller.core.store import batch_state
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port as bus_port
from stromboli.shared.messages import batch as messages
from stromboli.shared.runtime import runtime

ROUND_EVERY_S = 30.0
"""Seconds from a change to the round that writes it: a pod that changes five times is usually
written once."""
MAX_DIRTY_CHUNKS = 5_000
"""Number of dirty chunks that starts a round early; writing them takes well under a second."""
LOOK_S = 1.0
"""Interval in seconds at which a waiting writer checks the number of dirty chunks."""
CHUNKS_AT_ONCE = 200
"""Number of chunks that are encoded and appended together; they block the event loop for about 10
ms."""
_log = structlog.get_logger(__name__)


class BatchStateWriter:
    """The only writer of ``batch.state``, for one term. A failed round delays no job: the next
    round repeats its writes, and a leader that starts before then reads more events."""

    def __init__(
        self,
        state: batch_state.BatchState,
        writer: bus_port.Writer,
        topic_ids: Mapping[str, str],
        health: runtime.Health,
        clock: runtime.Clock,
    ) -> None:
        self._state = state
        self._writer = writer
        self._topic_ids = topic_ids
        self._health = health
        self._clock = clock
        self._last: messages.StatePosition | None = None
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Stop after one more round, so that the next leader has to read few events."""
        self._stopping.set()

    async def run(self) -> None:
        """Write rounds until stopped. Raises LogLostError, InvariantError."""
        backoff = runtime.Backoff()
        while True:
            is_last = self._stopping.is_set()
            wait_s = 0.0
            try:
                await self.write_round()
            except errors.LogLostError:
                raise
            except errors.ExternalError as error:
                self._health.warn("batch.state", str(error))
                wait_s = backoff.next_s()
            except errors.InvariantError:
                raise
            except Exception as error:  # a failed write must not stop the reconciling of jobs
                isolation.report(error, "batch.state")
                wait_s = backoff.next_s()
            else:
                self._health.warn("batch.state", None)
                backoff.reset()
            if is_last:
                return
            await self._wait(wait_s or ROUND_EVERY_S, is_early=not wait_s)

    async def write_round(self) -> None:
        """Write every chunk that is dirty now, then the position. Raises ExternalError."""
        chunks = iter(self._state.begin_round())
        position = self._state.position(
            self._topic_ids.get(topics.BATCH_EVENTS.name, ""),
            self._topic_ids.get(topics.BATCH_STATE.name, ""),
            self._clock(),
        )
        while some := tuple(itertools.islice(chunks, CHUNKS_AT_ONCE)):
            writes = list(self._state.writes(some))
            drafts = [
                self._draft(key, message, write.job)
                for write in writes
                for key, message in write.records
            ]
            await self._writer.append(*drafts)
            for write in writes:
                self._state.note_written(write)
        if position is not None and position != self._last:
            await self._writer.append(self._draft(batch_state.POSITION_KEY, position, ""))
            self._last = position

    def _draft(self, key: str, message: msgspec.Struct | None, job: str) -> envelope.Draft:
        return envelope.Draft(
            topic=topics.BATCH_STATE,
            key=key,
            message=message,
            time=self._clock(),
            object_uid=job if message is None else "",
            object_version="0" if message is None else "",
        )

    async def _wait(self, longest_s: float, *, is_early: bool) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                while not self._stopping.is_set():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), LOOK_S)
                    if is_early and self._state.dirty_chunks >= MAX_DIRTY_CHUNKS:
                        return
