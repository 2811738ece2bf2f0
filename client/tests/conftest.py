"""Embedded systems in threads beside the tests, known by their addresses alone."""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

from stromboli.embedded import system
from stromboli.embedded.nodes import simulated
from stromboli.embedded.processes import machine

NODES, CPUS = 2, 4


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A library runs on the event loop of its caller."""
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


async def _serve(
    options: system.Options, started: "concurrent.futures.Future[str]", stop: asyncio.Event
) -> None:
    async with system.run_system(options) as running:
        await running.ready()
        started.set_result(running.url)
        await stop.wait()


@contextlib.contextmanager
def _system_in_thread(options: system.Options) -> Iterator[str]:
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
        yield started.result(timeout=60)
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=30)


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a system with simulated nodes; tests use names of their own."""
    nodes = tuple(simulated.node_documents(NODES, cpu=str(CPUS), memory="8Gi"))
    options = system.Options(state=tmp_path_factory.mktemp("system"), nodes=nodes)
    with _system_in_thread(options) as address:
        yield address


@pytest.fixture(scope="session")
def process_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a system with one process node, on which commands run."""
    nodes = tuple(machine.node_documents(1, machine.resources(), cpu=str(CPUS)))
    options = system.Options(state=tmp_path_factory.mktemp("processes"), process_nodes=nodes)
    with _system_in_thread(options) as address:
        yield address
