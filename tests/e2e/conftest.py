"""Three environments for the same scenarios: one process, one process with fault injection, the
real parts.

An environment is a running system that a test uses only by its REST address, as a user does; an
operator can also kill its controller, change the cluster while the controller is down, and replace
the scheduler's configuration.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.scheduler.core.config import config_reader
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.testkit.parts.kubernetes import OWNER_AND_TAINT_CONTROLLERS
from stromboli.testkit.real_system import RealSystem
from tests.e2e.support import kubelet_system, operators

NODES, CPUS = 4, 4
"""Room for 16 pods of 1 CPU."""
SEED = int(os.environ.get("STROM_FAULT_SEED", "20261121"))
"""By which the disordered world is disordered; another one with STROM_FAULT_SEED=n."""
READY_WITHIN_S, STOP_WITHIN_S, POLL_EVERY_S = 240, 90, 0.05


class System(Protocol):
    """A running system, as an operator has it."""

    @property
    def url(self) -> str:
        """The REST address."""
        ...

    @property
    def configuration(self) -> Path:
        """The file that the scheduler follows."""
        ...

    def kill_controller(self) -> None:
        """``kill -9`` of the controller (embedded: of the whole process), and a restart."""
        ...

    def without_controller(self) -> contextlib.AbstractContextManager[operators.Operator]:
        """The same, with what an operator does between the two."""
        ...


class Embedded:
    """``strom up`` on a port that it keeps."""

    def __init__(self, state: Path, *options: str) -> None:
        self.configuration = configured(state / "scheduler.yaml", config_reader.DEFAULT)
        self._state = state
        self._options = ("--config", str(self.configuration), *options)
        self._port = "0"
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        """Start, and wait for REST."""
        self._starts += 1
        log = self._state / f"up-{self._starts}.log"
        arguments = ["up", "--state", str(self._state), "--port", self._port, *self._options]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [Path(sys.executable).with_name("strom"), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self.url = _address(self._process, log)
        except AssertionError:
            self._process.kill()
            self._process.wait()
            raise
        self._port = self.url.rpartition(":")[2]

    def stop(self) -> None:
        """Stop as Ctrl-C does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_WITHIN_S)
        finally:
            self._process.kill()
        assert self._process.returncode == 0

    def kill_controller(self) -> None:
        """It lives in one process with all the others."""
        self._kill()
        self.start()

    @contextlib.contextmanager
    def without_controller(self) -> Iterator[operators.Operator]:
        """Meanwhile the operator changes the cluster's file."""
        self._kill()
        cluster = EmbeddedCluster(self._state / "embedded" / "cluster.db")
        try:
            with asyncio.Runner() as runner, _inside(runner, cluster):
                yield operators.EmbeddedOperator(cluster, runner)
        finally:
            self.start()

    def _kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


class Real:
    """The four services on the real parts."""

    def __init__(self, system: RealSystem, runner: asyncio.Runner, configuration: Path) -> None:
        self.configuration = configuration
        self._system, self._runner = system, runner

    @property
    def url(self) -> str:
        """Admission's."""
        return self._system.url

    @property
    def kafka(self) -> str:
        """The broker that events can be read from."""
        return self._system.parts.kafka_bootstrap

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""
        return self._system.parts.kubeconfig

    def kill_controller(self) -> None:
        """This one process."""
        controller = self._system.services["controller"]
        self._runner.run(controller.kill())
        self._runner.run(controller.start())

    @contextlib.contextmanager
    def without_controller(self) -> Iterator[operators.Operator]:
        """All other parts continue."""
        controller, nodes = self._system.services["controller"], self._system.nodes
        assert nodes is not None
        self._runner.run(controller.kill())
        settings = KubernetesSettings(kubeconfig=str(self._system.parts.kubeconfig))
        cluster = KubernetesCluster(settings)
        try:
            with _inside(self._runner, cluster):
                yield operators.KubernetesOperator(cluster, self._runner, nodes)
        finally:
            self._runner.run(controller.start())


@contextlib.contextmanager
def _inside(runner: asyncio.Runner, opened: contextlib.AbstractAsyncContextManager[Any]) -> Any:
    runner.run(opened.__aenter__())
    try:
        yield
    finally:
        runner.run(opened.__aexit__(None, None, None))


def configured(file: Path, decides: Mapping[str, Any]) -> Path:
    """The file, written whole, as a mounted ConfigMap changes."""
    new = file.with_suffix(".new")
    new.write_text(yaml.safe_dump(dict(decides)))
    return new.rename(file)


@contextlib.contextmanager
def embedded(state: Path, *options: str) -> Iterator[System]:
    system = Embedded(state, *options)
    system.start()
    try:
        yield system
    finally:
        system.stop()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + READY_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            if line.startswith("REST"):
                return line.split()[1]
        time.sleep(POLL_EVERY_S)
    raise AssertionError(f"strom up was not ready:\n{log.read_text()}")


@contextlib.contextmanager
def _real(state: Path, **nodes: Any) -> Iterator[System]:
    with asyncio.Runner() as runner:
        file = configured(state / "scheduler.yaml", config_reader.DEFAULT)
        environment = {"STROM_SCHEDULER_CONFIGURATION": str(file)}
        system = RealSystem(
            state, environment=environment, controllers=OWNER_AND_TAINT_CONTROLLERS, **nodes
        )
        runner.run(system.start())
        try:
            yield Real(system, runner, file)
        finally:
            runner.run(system.stop())


@pytest.fixture(scope="module", params=kubelet_system.ROUNDS, ids=lambda number: f"round-{number}")
def kubelet_round(request: pytest.FixtureRequest) -> int:
    """All tests of a file on kubelets once, on the same nodes as in the round before."""
    number: int = request.param
    return number


@pytest.fixture(
    scope="session", params=["embedded", "disordered", pytest.param("real", marks=pytest.mark.real)]
)
def system(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """A running system."""
    state = tmp_path_factory.mktemp(request.param)
    room = ("--nodes", str(NODES), "--cpu", str(CPUS))
    if request.param == "real":
        request.getfixturevalue("real_tools")
        options = ("--cpu", str(CPUS), "--memory", "16Gi")
        opened = _real(state, simulated_nodes=NODES, node_options=options)
    elif request.param == "disordered":
        opened = embedded(state, *room, "--fault-seed", str(SEED))
    else:
        opened = embedded(state, *room)
    with opened as running:
        yield running


@pytest.fixture
def base_url(system: System) -> str:
    """The REST address of a running system."""
    return system.url


@pytest.fixture(
    scope="module", params=["embedded", "disordered", pytest.param("real", marks=pytest.mark.real)]
)
def process_base_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The same with two nodes that run commands as processes, and no others."""
    state = tmp_path_factory.mktemp(f"working-{request.param}")
    if request.param == "real":
        request.getfixturevalue("real_tools")
        opened = _real(state, process_nodes=2, node_options=("--cpu", str(CPUS)))
    else:
        fault_options = ("--fault-seed", str(SEED)) if request.param == "disordered" else ()
        opened = embedded(state, "--process-nodes", "2", "--cpu", str(CPUS), *fault_options)
    with opened as running:
        yield running.url


@pytest.fixture
def killable_system(tmp_path: Path) -> Iterator[System]:
    """An embedded one, with process nodes, for one test alone."""
    with embedded(tmp_path, "--process-nodes", "1", "--cpu", str(CPUS)) as running:
        yield running
