"""The fixture `real_parts`: all real parts, started once for a test session.

A test module names this plugin: `pytest_plugins = ["stromboli.testkit.parts.fixtures"]`. Without
the tools, the test is skipped with the command that installs them; with CI=true or STROM_REAL=1 it
fails, so that a skipped test is not mistaken for a passed one.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from stromboli.testkit.parts import kubernetes, real, tools

UNPRIVILEGED_USER = "stranger"  # a user without any rights, for tests of authorization


def skip_is_forbidden() -> bool:
    """Whether a missing part is a failure instead of a skip."""
    return os.environ.get("CI") == "true" or os.environ.get("STROM_REAL") == "1"


@pytest.fixture(scope="session")
def real_tools() -> tools.Tools:
    """The programs of the real parts; skips, or fails where skipping is forbidden."""
    try:
        return tools.locate()
    except tools.RealPartsMissingError as error:
        if skip_is_forbidden():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kubelet_tools(real_tools: tools.Tools) -> tools.KubeletTools:
    """The programs that real kubelets need. Skips if one is missing; `make test-kubelets` fails
    instead."""
    try:
        return tools.locate_kubelets()
    except tools.RealPartsMissingError as error:
        if os.environ.get("STROM_KUBELETS") == "1":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def engine_tools(real_tools: tools.Tools) -> tools.EngineTools:
    """The programs that a container engine needs. Skips unless STROM_ENGINE is 1, because building
    images takes minutes. `make test-engine` and CI fail if a program is missing."""
    if os.environ.get("STROM_ENGINE") != "1" and os.environ.get("CI") != "true":
        pytest.skip("builds and runs our images for minutes: make test-engine")
    try:
        return tools.locate_engine()
    except tools.RealPartsMissingError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def operator_tools(real_tools: tools.Tools) -> dict[str, tools.OperatorTool]:
    """Third-party controllers. Skips if one is missing; `make test-operators` fails instead."""
    try:
        return tools.locate_operators()
    except tools.RealPartsMissingError as error:
        if os.environ.get("STROM_OPERATORS") == "1":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def volcano_suites(real_tools: tools.Tools) -> Path:
    """The folder of Volcano's suites. Skips if they are missing; `make test-volcano` fails
    instead."""
    try:
        return tools.locate_volcano()
    except tools.RealPartsMissingError as error:
        if os.environ.get("STROM_VOLCANO") == "1":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def image_file_tools() -> tools.ImageFileTools:
    """The programs that run image files. Skips if one is missing; `make test-sif` fails instead."""
    try:
        return tools.locate_image_files()
    except tools.RealPartsMissingError as error:
        if os.environ.get("STROM_SIF") == "1":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_parts(
    real_tools: tools.Tools, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[real.RealParts]:
    """The running parts, shared by all tests of the session, so each test uses unique names.

    A test that stops or kills a part must leave it running and ready.
    """
    state = tmp_path_factory.mktemp("real-parts")
    async with real.RealParts(state, users=[kubernetes.User(UNPRIVILEGED_USER)]) as parts:
        yield parts
