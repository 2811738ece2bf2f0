"""The forecast process: its start, its end, and the frames to and from it."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

import msgspec

from stromboli.scheduler.forecasting import frames
from stromboli.shared.api import meta
from stromboli.shared.bus import port

IDLE_S = 600.0
"""Seconds without a request after which the process ends."""


@contextlib.asynccontextmanager
async def running(
    start: frames.Start, events: Callable[[], AsyncIterator[port.Batch]]
) -> AsyncGenerator["Channel", None]:
    """A forecast process that has read all past events and receives new ones. Errors of the process
    are raised in an ExceptionGroup."""
    async with _process() as process, asyncio.TaskGroup() as tasks:
        channel = Channel(process)
        await channel.write(start)
        caught_up = asyncio.Event()
        feeding = tasks.create_task(_feed(channel, events(), caught_up))
        await caught_up.wait()
        yield channel
        feeding.cancel()


async def _feed(
    channel: "Channel", events: AsyncIterator[port.Batch], caught_up: asyncio.Event
) -> None:
    async with contextlib.aclosing(events) as batches:  # type: ignore[type-var]
        async for batch in batches:
            records = [(it.type, it.value) for it in batch.records if it.value]
            if records:
                await channel.write(frames.Events(records))
            if batch.caught_up:
                caught_up.set()


class Channel:
    """Frames to and from a process. Events and objects may be written by different tasks."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None, "it has a pipe"
        assert process.stdout is not None, "it has a pipe"
        self._stdin, self._stdout = process.stdin, process.stdout

    async def write(self, message: frames.Request) -> None:
        """Write a frame, and wait while the process does not read."""
        self._stdin.write(frames.frame(message))
        await self._stdin.drain()

    async def send_objects(self, objects: Mapping[str, Sequence[meta.Object]]) -> float:
        """Encode objects outside the event loop and write them. Return the CPU seconds used."""
        spent_s = 0.0
        for field, objs in objects.items():
            for at in range(0, len(objs), frames.OBJECTS_PER_FRAME):
                part = objs[at : at + frames.OBJECTS_PER_FRAME]
                body, cpu_s = await asyncio.to_thread(_encode, field, part)
                spent_s += cpu_s
                self._stdin.write(body)
                await self._stdin.drain()
        return spent_s

    async def ask(self, requested: frames.Compute | frames.Ask) -> frames.Answer:
        """Write a request and wait for its answer. Raises IncompleteReadError if the process
        ends."""
        await self.write(requested)
        head = await self._stdout.readexactly(frames.LENGTH.size)
        (size,) = frames.LENGTH.unpack(head)
        return frames.answer(await self._stdout.readexactly(size))


def _encode(field: str, part: Sequence[meta.Object]) -> tuple[bytes, float]:
    began_s = time.thread_time()
    body = frames.frame(frames.Objects(field, [msgspec.msgpack.encode(each) for each in part]))
    return body, time.thread_time() - began_s


@contextlib.asynccontextmanager
async def _process() -> AsyncIterator[asyncio.subprocess.Process]:
    """A forecast process, killed at the end. Ctrl-C in a terminal does not reach it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stromboli.scheduler.forecasting.worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
