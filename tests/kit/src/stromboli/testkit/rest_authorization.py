"""What a client of REST on loopback sends along, for clients that are not ours."""

import os

from stromboli.shared import loopback_token


def authorization(url: str) -> dict[str, str]:
    """The header with the token of the server at ``url``; none if it asks for none, or is not up
    yet."""
    file = loopback_token.file_for(url, os.environ)
    token = loopback_token.read_token(file) if file else ""
    return {"authorization": f"Bearer {token}"} if token else {}
