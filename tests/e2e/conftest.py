"""Three worlds for the same scenarios: one process, one process in disorder, the real parts.

A world is a running system that a test knows by its REST address alone, as a user does.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stromboli.testkit.real_system import RealSystem

NODES, CPUS = 4, 4
"""Room for 16 pods of 1 CPU."""
SEED = int(os.environ.get("STROM_DISORDER", "20261121"))
"""By which the disordered world is disordered; another one with STROM_DISORDER=n."""
READY_WITHIN_S, STOP_WITHIN_S, LOOK_EVERY_S = 30, 15, 0.05


@contextlib.contextmanager
def _embedded(state: Path, *options: str) -> Iterator[str]:
    arguments = ["up", "--state", str(state), "--port", "0", "--nodes", str(NODES)]
    log = state / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("strom"), *arguments, "--cpu", str(CPUS), *options],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield _address(process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_WITHIN_S)
        finally:
            process.kill()
        assert process.returncode == 0


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + READY_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            if line.startswith("REST"):
                return line.split()[1]
        time.sleep(LOOK_EVERY_S)
    raise AssertionError(f"strom up was not ready:\n{log.read_text()}")


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
