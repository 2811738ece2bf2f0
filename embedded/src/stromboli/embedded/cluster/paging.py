"""Continue tokens of the embedded cluster. Pure.

A token encodes a name, not a version: an object that exists throughout is listed exactly once, and
the token never expires.
"""

import base64
import binascii

import msgspec

from stromboli.embedded.cluster.state import Key
from stromboli.shared import decoding, errors


def token_of(last: Key) -> str:
    """Return the continue token after an object."""
    place = msgspec.json.encode((last.namespace, last.name))
    return base64.urlsafe_b64encode(place).decode()


def position_of(token: str, what: str) -> tuple[str, str]:
    """Return the namespace and name in a token. Raises InvalidError."""
    try:
        place = base64.b64decode(token, altchars=b"-_", validate=True)
        return decoding.from_json(place, tuple[str, str])
    except (binascii.Error, ValueError):
        raise errors.InvalidError(
            what, f"{token[:80]!r} is not a continue token; list from the beginning"
        ) from None
