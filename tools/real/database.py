"""Provides PostgreSQL for the tests of the history: from PATH, else from Debian's package."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.real import debian
from tools.real.errors import InstallError

PROGRAM = "initdb"
PACKAGED = Path("/usr/lib/postgresql")
"""The folder below which Debian installs the programs of each version, which are not on PATH."""


def find() -> str | None:
    """The path of ``initdb``; None if there is none."""
    packaged = sorted(map(str, PACKAGED.glob(f"*/bin/{PROGRAM}")))
    return shutil.which(PROGRAM) or (packaged[-1] if packaged else None)


def ensure() -> None:
    """Install PostgreSQL if there is none. Raises InstallError."""
    if find() is None:
        debian.install("postgresql")
        if find() is None:
            raise InstallError(
                f"Debian's package postgresql did not install {PROGRAM}; install PostgreSQL on PATH"
            )
