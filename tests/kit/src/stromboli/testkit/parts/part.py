"""Base class of the real parts: fixed ports, one process, readiness, restart."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import ClassVar

from stromboli.testkit.parts import ports
from stromboli.testkit.parts.process import PartFailedError, Process

PORT_ATTEMPTS = 3  # between choosing a port and binding it another process may take it
PORT_IN_USE = ("address already in use", "addressalreadyinuse", "bindexception")


class Part(abc.ABC):
    """One server process with its state in a directory.

    Its ports are chosen at the first start and never change, so clients reconnect after a restart.
    A subclass defines the number of ports, the command line and the readiness check.
    """

    name: ClassVar[str]
    port_count: ClassVar[int] = 1
    ready_timeout_s: ClassVar[float] = 120.0
    stop_grace_s: ClassVar[float] = 30.0

    def __init__(self, state: Path, *, detached: bool = False) -> None:
        """`state`: the absolute path of the folder for state and log. Does not start the
        process."""
        self.state = state.resolve()
        self.detached = detached
        self.ports: tuple[int, ...] = ()
        self._process: Process | None = None

    @abc.abstractmethod
    def command(self) -> list[str]:
        """The command line, with the chosen ports."""

    def environment(self) -> dict[str, str]:
        """Variables that are added to the environment of this process."""
        return {}

    @abc.abstractmethod
    async def is_ready(self) -> bool:
        """Whether clients can use the part."""

    async def prepare(self) -> None:  # noqa: B027 - most parts have nothing to write
        """Write the files that the process reads at its start; called before every start."""

    @property
    def process(self) -> Process:
        """The process of the last start. Raises RuntimeError if it was never started."""
        if self._process is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._process

    async def start(self) -> None:
        """Start and return when ready; no effect if it runs. Raises PartFailedError with the end of
        the log."""
        if self._process is not None and self._process.is_running:
            return
        if self.ports or self.port_count == 0:
            await self._launch()
            return
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self.ports = ports.free_ports(self.port_count)
            try:
                await self._launch()
            except PartFailedError as error:
                taken = any(word in error.tail.lower() for word in PORT_IN_USE)
                if not taken or attempt == PORT_ATTEMPTS:
                    raise
            else:
                return

    async def _launch(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        await self.prepare()
        log = self.state / f"{self.name}.log"
        self._process = Process(
            self.name, self.command(), log, env=self.environment(), detached=self.detached
        )
        self._process.start()
        try:
            await self._process.wait_ready(self.is_ready, self.ready_timeout_s)
        except BaseException:
            await self._process.kill()
            raise

    async def stop(self) -> None:
        """Stop the process with SIGTERM, as a supervisor does; no effect if it is not running."""
        if self._process is not None:
            await self._process.stop(self.stop_grace_s)

    async def kill(self) -> None:
        """Kill the process with SIGKILL, as in a crash."""
        if self._process is not None:
            await self._process.kill()
