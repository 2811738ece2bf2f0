"""One system for the tests of all operators: each test leaves room for the next one."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from stromboli.testkit.parts.tools import Tools
from tests.operators.support import operator_system
from tests.operators.support.operator_system import OperatorSystem


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def system(
    real_tools: Tools, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[OperatorSystem]:
    """A running system with two nodes of four CPUs."""
    async with operator_system.running(real_tools, tmp_path_factory.mktemp("operators")) as opened:
        yield opened
