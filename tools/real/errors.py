"""The one way the installer gives up: a line that names the fact and the next step."""

from __future__ import annotations


class InstallError(Exception):
    """Ends the installation; its text is one line with the next step."""
