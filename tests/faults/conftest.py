"""One system for all kills: each starts in a system that has been through the ones before."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from stromboli.testkit.parts import tools
from tests.faults.support import observed_system as scenes


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def live_system(
    real_tools: tools.Tools, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[scenes.ObservedSystem]:
    """Use a namespace of your own, and leave every part running and ready."""
    async with scenes.start_observed_system(tmp_path_factory.mktemp("faults")) as live_system:
        yield live_system
