"""The address of the server, found as in the client library; errors become CommandErrors."""

from collections.abc import Mapping
from pathlib import Path

from stromboli.cli import contexts
from stromboli.client import address as addresses
from stromboli.client.address import DEFAULT_URL, Address

__all__ = ["DEFAULT_URL", "Address", "address", "checked"]


def address(flag: str | None, environment: Mapping[str, str], directory: Path) -> Address:
    """The address in force. Raises UsageError if the first one found is not a URL."""
    with contexts.translate_errors():
        return addresses.find(flag, environment, directory, "from --server")


def checked(url: str, origin: str) -> Address:
    """The address of a URL. Raises UsageError if the text is not a URL."""
    with contexts.translate_errors():
        return addresses.checked(url, origin)
