"""Runs an embedded system in a thread beside the tests, which know only its address."""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Iterator

import uvloop

from stromboli.embedded import system

STARTS_WITHIN_S, ENDS_WITHIN_S = 120, 90


async def _serve(
    options: system.Options, started: "concurrent.futures.Future[str]", stop: asyncio.Event
) -> None:
    async with system.run_system(options) as running:
        await running.ready()
        started.set_result(running.url)
        await stop.wait()


@contextlib.contextmanager
def system_in_thread(options: system.Options) -> Iterator[str]:
    """The address of a system that runs while inside, once it is ready."""
    started: concurrent.futures.Future[str] = concurrent.futures.Future()
    stop = asyncio.Event()
    loop = uvloop.new_event_loop()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(_serve(options, started, stop))
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield started.result(timeout=STARTS_WITHIN_S)
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=ENDS_WITHIN_S)
