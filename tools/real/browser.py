"""Chromium for the tests of what a web page may do: found on PATH, else Debian's package.

No wheel ships a whole browser, and its package brings the libraries it needs: 17 s and 120 MB.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from tools.real.errors import InstallError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MANAGER = "apt-get"
COMMANDS = (
    (MANAGER, "update", "-q"),
    (MANAGER, "install", "-q", "-y", "--no-install-recommends", "chromium"),
)
LIMIT_S = 900
NEXT = "install Chromium or Chrome so that it is on PATH, then call make again"


def find() -> str | None:
    """The path of a browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def ensure() -> str:
    """The path of a browser, installed now if there was none. Raises InstallError."""
    if (found := find()) is not None:
        return found
    if os.geteuid() != 0 or shutil.which(MANAGER) is None:
        raise InstallError(f"no Chromium, and only root can install it with {MANAGER}: {NEXT}")
    print("Chromium: installing Debian's package", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in COMMANDS:
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=LIMIT_S,
                env=environment,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InstallError(f"{' '.join(command)}: {error}: {NEXT}") from None
        if done.returncode != 0 and command is COMMANDS[-1]:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise InstallError(f"{' '.join(command)}: {''.join(last)}: {NEXT}")
    if (found := find()) is None:
        raise InstallError(f"Debian's package brought no browser: {NEXT}")
    return found
