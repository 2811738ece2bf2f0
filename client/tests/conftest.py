"""Embedded systems in threads beside the tests, known by their addresses alone."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

from stromboli.embedded import system
from stromboli.embedded.nodes import simulated
from stromboli.embedded.processes import machine
from stromboli.testkit.threaded_system import system_in_thread

NODES, CPUS = 2, 4


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A library runs on the event loop of its caller."""
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a system with simulated nodes; tests use names of their own."""
    nodes = tuple(simulated.node_documents(NODES, cpu=str(CPUS), memory="8Gi"))
    options = system.Options(state=tmp_path_factory.mktemp("system"), nodes=nodes)
    with system_in_thread(options) as address:
        yield address


@pytest.fixture(scope="session")
def process_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a system with one process node, on which commands run."""
    nodes = tuple(machine.node_documents(1, machine.resources(), cpu=str(CPUS)))
    options = system.Options(state=tmp_path_factory.mktemp("processes"), process_nodes=nodes)
    with system_in_thread(options) as address:
        yield address
