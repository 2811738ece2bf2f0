"""A system with process nodes, on which the engines' commands run."""

import os
import sys
from collections.abc import Iterator

import pytest

from stromboli.client import Client
from stromboli.embedded import system
from stromboli.embedded.processes import machine
from stromboli.testkit.threaded_system import system_in_thread

NODES, CPUS = 2, 4


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a system with process nodes, also in ``STROM_SERVER``. Tests share it, so each
    uses other names."""
    nodes = tuple(machine.node_documents(NODES, machine.resources(), cpu=str(CPUS)))
    options = system.Options(state=tmp_path_factory.mktemp("system"), process_nodes=nodes)
    with system_in_thread(options) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STROM_SERVER", address)
        # The programs of this environment are found on PATH as after its activation.
        patch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
        yield address


@pytest.fixture
def client(server: str) -> Iterator[Client]:
    """A client of the system."""
    with Client(server) as opened:
        yield opened
