"""The exception of the installer."""

from __future__ import annotations


class InstallError(Exception):
    """Ends the installation. Its text is one line with the reason and the next step."""
