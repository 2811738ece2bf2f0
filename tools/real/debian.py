"""Installs Debian packages of programs that no wheel contains: a browser, a database,
containers."""

from __future__ import annotations

import os
import shutil
import subprocess

from tools.real.errors import InstallError

MANAGER = "apt-get"
LIMIT_S = 900


def install(*packages: str) -> None:
    """Install packages. Raises InstallError, also if this requires root."""
    names = ", ".join(packages)
    if os.geteuid() != 0 or shutil.which(MANAGER) is None:
        raise InstallError(
            f"{names}: not installed, and only root can install it with {MANAGER}: install it so "
            "that its programs are found, then run make again"
        )
    print(f"installing Debian's {names}", flush=True)
    # A repository that is not needed may be unreachable.
    _apt_get("update", "-q", is_required=False)
    _apt_get("install", "-q", "-y", "--no-install-recommends", *packages)


def _apt_get(*arguments: str, is_required: bool = True) -> None:
    """Run apt-get without interaction. Raises InstallError with the last line of its output."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = [MANAGER, *arguments]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=LIMIT_S, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"{' '.join(command)}: {error}") from None
    if is_required and done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise InstallError(f"{' '.join(command)}: {''.join(last)}")
