"""A service without some of its rules, as a process in the place of the real one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from stromboli.testkit.parts.part import Part
from stromboli.testkit.real_system import Service


class Variant(Part):
    """Runs ``program``, a module beside this one, with the settings of the service it replaces."""

    name = "variant"
    port_count = 0

    def __init__(self, state: Path, program: str, replaced: Service) -> None:
        super().__init__(state)
        self._program = Path(__file__).with_name(f"{program}.py")
        self._replaced = replaced

    def command(self) -> list[str]:
        """The program's command line."""
        return [sys.executable, str(self._program)]

    def environment(self) -> dict[str, str]:
        """That of the replaced service."""
        return self._replaced.environment()

    async def is_ready(self) -> bool:
        """What is answered on the port of the replaced service."""
        return await self._replaced.is_ready()


@contextlib.asynccontextmanager
async def stopped(service: Service) -> AsyncIterator[None]:
    """The service does not run inside, and runs again afterwards."""
    await service.stop()
    try:
        yield
    finally:
        await service.start()


@contextlib.asynccontextmanager
async def replacing(service: Service, program: str, state: Path) -> AsyncIterator[Variant]:
    """The variant runs inside, and the service again afterwards."""
    variant = Variant(state, program, service)
    async with stopped(service):
        try:
            await variant.start()
            yield variant
        finally:
            await variant.stop()
