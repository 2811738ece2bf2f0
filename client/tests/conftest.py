"""The whole embedded system in a thread beside the tests, known by its address alone."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop

from stromboli.embedded import system
from stromboli.embedded.nodes import simulated

NODES, CPUS = 2, 4


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A library runs on the loop of whoever uses it."""
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


async def _served(
    state: Path, started: "concurrent.futures.Future[str]", stop: asyncio.Event
) -> None:
    nodes = tuple(simulated.node_documents(NODES, cpu=str(CPUS), memory="8Gi"))
    async with system.run_system(system.Options(state=state, nodes=nodes)) as running:
        await running.ready()
        started.set_result(running.url)
        await stop.wait()


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address; tests use names of their own."""
    started: concurrent.futures.Future[str] = concurrent.futures.Future()
    stop = asyncio.Event()
    loop = uvloop.new_event_loop()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(_served(tmp_path_factory.mktemp("system"), started, stop))
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield started.result(timeout=60)
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=30)
