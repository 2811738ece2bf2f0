"""Volcano's programs against the same server as the tests of ``strom``."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.tests.conftest import api_server
from stromboli.vcctl import programs

__all__ = ["api_server"]  # a fixture

Program = Callable[..., tuple[int, str]]


@pytest.fixture
def program(
    api_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Program:
    """Runs a program as its entry point does; returns exit code and stdout."""
    monkeypatch.setenv("STROM_SERVER", api_server.url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def call(name: str, *arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with pytest.raises(SystemExit) as ended:
            getattr(programs, name)()
        code = ended.value.code
        return (code if isinstance(code, int) else 0), capsys.readouterr().out

    return call
