"""Which ID tokens are accepted (OpenID Connect Core 1.0, sections 3.1.3.7 and 12.2).

1. The token is signed with a key of the provider and an asymmetric algorithm: ``none`` and HMAC are
   refused, so that neither an unsigned token nor one signed with the client's secret is accepted.
2. ``iss`` is the configured issuer, and ``aud`` contains this client. ``azp`` is this client if it
   is present; it is required if ``aud`` contains several clients.
3. ``exp`` is in the future and ``iat`` is not, each with ``LEEWAY_S`` for clock skew.
4. ``nonce`` is that of the login; a renewed token has the ``sub`` of the first one instead.
5. Claims that the administrator requires are present.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from joserfc import errors as jose
from joserfc import jwt
from joserfc.jwk import KeySet

from stromboli.console.oidc.errors import LoginRefusedError

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
LEEWAY_S = 60
"""Allowed clock skew: clocks that NTP synchronizes differ by less."""
ASK_ADMINISTRATOR = "Ask an administrator to look at the console's log and the provider's settings."


class UnknownKeyError(Exception):
    """The token names a key that is not in the set: the provider may have changed its keys."""


class Expected(msgspec.Struct, frozen=True):
    """The required claims of a token. ``nonce``: empty for a renewed token; ``subject``: empty for
    the token of a login; ``required_claims``: names of claims that must be present."""

    issuer: str
    client_id: str
    nonce: str = ""
    subject: str = ""
    required_claims: tuple[str, ...] = ()


class IdToken(msgspec.Struct, frozen=True):
    """An accepted token. ``expires_at``: seconds since 1970."""

    raw: str
    subject: str
    expires_at: float


def accept(raw: str, keys: KeySet, expected: Expected, now: float) -> IdToken:
    """Checks a token and returns it decoded. Raises UnknownKeyError, and LoginRefusedError for a
    token that is not accepted."""
    claims = _signed_claims(raw, keys)
    try:
        _registry(expected, int(now)).validate(claims)
    except jose.ExpiredTokenError:
        raise _refused(
            f"it expired: its exp is {claims['exp']}, this server's time {int(now)}"
        ) from (None)
    except jose.JoseError as error:
        raise _refused(str(error.description or error)) from None
    _check_party(claims, expected)
    _check_required(claims, expected.required_claims)
    return IdToken(raw, claims["sub"], float(claims["exp"]))


def _signed_claims(raw: str, keys: KeySet) -> dict[str, Any]:
    """The claims of a token with a valid signature."""
    try:
        return jwt.decode(raw, keys, algorithms=ALGORITHMS).claims
    except jose.InvalidKeyIdError:
        raise UnknownKeyError from None
    except (jose.JoseError, ValueError) as error:
        raise _refused(f"its signature is not valid: {error}") from None


def _registry(expected: Expected, now: int) -> jwt.JWTClaimsRegistry:
    options: dict[str, Any] = {
        "iss": {"essential": True, "value": expected.issuer},
        "aud": {"essential": True, "value": expected.client_id},
        "sub": {"essential": True},
        "exp": {"essential": True},
        "iat": {"essential": True},
    }
    if expected.nonce:
        options["nonce"] = {"essential": True, "value": expected.nonce}
    if expected.subject:
        options["sub"]["value"] = expected.subject
    return jwt.JWTClaimsRegistry(now=now, leeway=LEEWAY_S, **options)


def _check_party(claims: Mapping[str, Any], expected: Expected) -> None:
    party, audience = claims.get("azp"), claims["aud"]
    if party is None and isinstance(audience, list) and len(audience) > 1:
        raise _refused("it has several audiences and no azp")
    if party is not None and party != expected.client_id:
        raise _refused("its azp names another client")


def _check_required(claims: Mapping[str, Any], required: Sequence[str]) -> None:
    missing = [name for name in required if not claims.get(name)]
    if not missing:
        return
    raise LoginRefusedError(
        f"The identity provider's token has no {' and no '.join(missing)}; it has "
        f"{', '.join(sorted(claims))}.",
        "Your account may be in no group. If it is in one, ask an administrator to let the "
        "provider add the claim, often by a scope (STROM_CONSOLE_OIDC_SCOPES).",
    )


def _refused(why: str) -> LoginRefusedError:
    return LoginRefusedError(
        f"The identity provider's token is not accepted: {why}.", ASK_ADMINISTRATOR
    )
