"""A login between its start and its callback: in a cookie, so that it needs no memory here.

The cookie binds the callback to the browser that started the login: its ``state`` has to be that of
the callback (login CSRF), its ``nonce`` that of the ID token, and its ``verifier`` that of the code
(PKCE). It needs no signature: a user who changes it can log in only as a user of the provider, and
the ``__Host-`` prefix keeps other hosts of the domain from setting it. Any replica can read it.
"""

import base64
import binascii
import hmac
import secrets

import msgspec

from stromboli.shared import decoding

SECRET_BYTES = 32
VALID_S = 600
"""Time for the user to log in at the provider, with a second factor."""
MOST_CHARACTERS = 3500
"""Browsers keep cookies up to 4096 characters."""


class PendingLogin(msgspec.Struct, frozen=True, array_like=True):
    """A login that waits for its callback. ``to``: the path to continue at; ``started_at``: seconds
    since 1970."""

    state: str
    nonce: str
    verifier: str
    to: str
    namespace: str
    started_at: float

    def matches(self, state: str, now: float) -> bool:
        """Whether a callback belongs to this login."""
        is_own = hmac.compare_digest(self.state.encode(), state.encode())
        return is_own and 0 <= now - self.started_at <= VALID_S


_encoder = msgspec.json.Encoder()


def start(to: str, namespace: str, now: float) -> PendingLogin:
    """A new login with new secrets."""
    state, nonce, verifier = (secrets.token_urlsafe(SECRET_BYTES) for _ in range(3))
    return PendingLogin(state, nonce, verifier, to, namespace, now)


def encode(login: PendingLogin) -> str:
    """The login as the value of a cookie, without path and namespace if they make it too long."""
    value = base64.urlsafe_b64encode(_encoder.encode(login)).decode()
    if len(value) <= MOST_CHARACTERS:
        return value
    return encode(msgspec.structs.replace(login, to="/", namespace=""))


def decode(value: str) -> PendingLogin | None:
    """The login in the value of a cookie; None if the value is invalid."""
    try:
        return decoding.from_json(base64.urlsafe_b64decode(value.encode()), PendingLogin)
    except (msgspec.DecodeError, binascii.Error, UnicodeEncodeError):
        return None
