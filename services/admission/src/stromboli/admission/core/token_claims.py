"""Times in the claims of a token, if it is a JWT (RFC 7519).

The claims are not trusted: the API server validates the token. They only shorten what it allows.
"""

import base64

import msgspec

from stromboli.shared import decoding


class _Claims(msgspec.Struct, frozen=True):
    exp: float
    iat: float | None = None


_CLAIMS = decoding.decoder_of(_Claims)


def expires_at(token: str) -> float | None:
    """When a token expires, in seconds since 1970."""
    claims = _read(token)
    return None if claims is None else claims.exp


def lifetime_s(token: str) -> float | None:
    """The lifetime of a token from issue to expiry."""
    claims = _read(token)
    return None if claims is None or claims.iat is None else claims.exp - claims.iat


def _read(token: str) -> _Claims | None:
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        raw = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return decoding.decode(_CLAIMS, raw)
    except ValueError:  # also the errors of binascii and msgspec
        return None
