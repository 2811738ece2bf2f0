"""Three worlds for the same scenarios: one process, one process in disorder, the real parts.

A world is a running system that a test knows by its REST address alone, as a user does.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stromboli.testkit.real_system import RealSystem

pytest_plugins = ["stromboli.testkit.parts.fixtures"]

NODES, CPUS = 4, 4
"""Room for 16 pods of 1 CPU."""
SEED = int(os.environ.get("STROM_DISORDER", "20261121"))
"""By which the disordered world is disordered; another one with STROM_DISORDER=n."""
STOP_WITHIN_S = 15


@contextlib.contextmanager
def _embedded(state: Path, *options: str) -> Iterator[str]:
    arguments = ["up", "--state", str(state), "--port", "0", "--nodes", str(NODES)]
    process = subprocess.Popen(
        [sys.executable, "-m", "stromboli.cli", *arguments, "--cpu", str(CPUS), *options],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("REST"):
                threading.Thread(target=process.stdout.read, daemon=True).start()
                yield line.split()[1]
                break
        else:
            raise AssertionError(f"strom up ended with {process.wait()} before it was ready")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_WITHIN_S)
        finally:
            process.kill()
        assert process.returncode == 0


@contextlib.contextmanager
def _real(state: Path) -> Iterator[str]:
    with asyncio.Runner() as runner:
        system = RealSystem(
            state, simulated_nodes=NODES, node_options=("--cpu", str(CPUS), "--memory", "16Gi")
        )
        runner.run(system.start())
        try:
            yield system.url
        finally:
            runner.run(system.stop())


@pytest.fixture(
    scope="session", params=["embedded", "disordered", pytest.param("real", marks=pytest.mark.real)]
)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The REST address of a running system."""
    state = tmp_path_factory.mktemp(request.param)
    if request.param == "real":
        request.getfixturevalue("real_tools")
        opened = _real(state)
    elif request.param == "disordered":
        opened = _embedded(state, "--disorder", str(SEED))
    else:
        opened = _embedded(state)
    with opened as url:
        yield url
