"""Chromium for the tests of what a web page may do: found on PATH, else Debian's package.

No wheel ships a whole browser, and its package brings the libraries it needs: 17 s and 120 MB.
"""

from __future__ import annotations

import shutil

from tools.real import debian
from tools.real.errors import InstallError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> str | None:
    """The path of a browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def ensure() -> None:
    """Install a browser if there is none. Raises InstallError."""
    if find() is None:
        debian.install("chromium")
        if find() is None:
            raise InstallError("Debian's package chromium brought no browser; install one on PATH")
