"""The node agent as a process beside a real kubelet, with the hardware of a recorded machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from stromboli.testkit.parts.part import Part

REPORTED = "reported"
"""The end of the line that it logs after a report."""


class NodeAgent(Part):
    """The agent of ``node``. It reads ``kubelet``, the kubelet's folder, the tree ``sysfs``, and
    the GPU driver's answers in ``driver``. ``token``: file of its token."""

    name: ClassVar[str] = "node-agent"
    port_count: ClassVar[int] = 0

    def __init__(
        self,
        state: Path,
        node: str,
        monitor: str,
        token: Path,
        *,
        kubelet: Path,
        sysfs: Path,
        driver: Path,
    ) -> None:
        super().__init__(state)
        self._machine = [f"--sysfs={sysfs}", f"--nvml={driver}", f"--kubelet={kubelet}"]
        self._settings = {"NODE": node, "MONITOR": monitor, "TOKEN_FILE": str(token)}

    def command(self) -> list[str]:
        """The command line of the agent."""
        return [sys.executable, "-m", "stromboli.monitor.agent", *self._machine]

    def environment(self) -> dict[str, str]:
        """The agent's settings: it reads and reports every second."""
        often = {"READ_EVERY_S": "1", "ALIVE_EVERY_S": "1"}
        return {f"STROM_AGENT_{name}": value for name, value in {**self._settings, **often}.items()}

    async def is_ready(self) -> bool:
        """Whether the monitor has accepted a report."""
        return REPORTED in self.process.logged().split()
