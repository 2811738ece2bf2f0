"""Provides Chromium for the tests of web pages: from PATH, else from Debian's package.

No wheel contains a whole browser. The package includes the libraries that it needs: 17 s and 120
MB.
"""

from __future__ import annotations

import shutil

from tools.real import debian
from tools.real.errors import InstallError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> str | None:
    """The path of a browser; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def ensure() -> None:
    """Install a browser if there is none. Raises InstallError."""
    if find() is None:
        debian.install("chromium")
        if find() is None:
            raise InstallError(
                "Debian's package chromium did not install a browser; install one on PATH"
            )
