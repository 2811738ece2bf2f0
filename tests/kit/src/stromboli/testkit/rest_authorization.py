"""Authorization headers for clients of REST on loopback other than Stromboli's own."""

import os

from stromboli.shared import loopback_token


def authorization(url: str) -> dict[str, str]:
    """The header with the token of the server at ``url``; empty if it requires none or is not
    running yet.
    """
    file = loopback_token.file_for(url, os.environ)
    token = loopback_token.read_token(file) if file else ""
    return {"authorization": f"Bearer {token}"} if token else {}
