"""Which ID tokens are accepted. The numbers are those of the rules in ``id_tokens.py``."""

import base64
import hmac
import json
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from stromboli.console.oidc import id_tokens
from stromboli.console.oidc.errors import LoginRefusedError
from stromboli.console.oidc.id_tokens import LEEWAY_S, Expected

NOW = 1_800_000_000.0
ISSUER, CLIENT = "https://login.example.com", "console"
KEY = RSAKey.generate_key(2048, {"kid": "one"})
KEYS = KeySet([KEY])
EXPECTED = Expected(ISSUER, CLIENT, nonce="n1")
CLAIMS = {
    "iss": ISSUER,
    "aud": CLIENT,
    "sub": "vera",
    "nonce": "n1",
    "iat": NOW - 5,
    "exp": NOW + 300,
}


def signed(key: Any = KEY, algorithm: str = "RS256", **changes: Any) -> str:
    claims = {name: it for name, it in {**CLAIMS, **changes}.items() if it is not None}
    header = {"alg": algorithm, "kid": "one"}
    return jwt.encode(header, claims, key, algorithms=[algorithm])


def forged(algorithm: str, secret: bytes) -> str:
    """A token that joserfc does not make: unsigned, or signed with a public key as the secret."""

    def encode(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")

    header = json.dumps({"alg": algorithm, "kid": "one"}).encode()
    text = f"{encode(header)}.{encode(json.dumps(CLAIMS).encode())}"
    signature = hmac.digest(secret, text.encode(), "sha256") if secret else b""
    return f"{text}.{encode(signature)}"


def test_a_token_of_the_issuer_for_this_client_is_accepted() -> None:
    id_token = id_tokens.accept(signed(), KEYS, EXPECTED, NOW)
    assert (id_token.subject, id_token.expires_at) == ("vera", NOW + 300)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": "https://evil.example.com"}, "iss"),
        ({"iss": f"{ISSUER}/"}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": "another"}, "aud"),
        ({"aud": None}, "aud"),
        ({"aud": [CLIENT, "another"]}, "azp"),
        ({"aud": [CLIENT, "another"], "azp": "another"}, "azp"),
        ({"azp": "another"}, "azp"),
        ({"nonce": "n2"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"sub": None}, "sub"),
        ({"exp": None}, "exp"),
        ({"exp": NOW - LEEWAY_S - 1}, "expired"),
        ({"iat": NOW + LEEWAY_S + 1}, "future"),
        ({"iat": None}, "iat"),
        ({"nbf": NOW + LEEWAY_S + 1}, "not yet valid"),
    ],
)
def test_a_token_with_another_claim_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(LoginRefusedError, match=why):
        id_tokens.accept(signed(**changes), KEYS, EXPECTED, NOW)


def test_clocks_may_differ_by_the_leeway() -> None:
    late, early = signed(exp=NOW - LEEWAY_S + 2), signed(iat=NOW + LEEWAY_S - 2)
    assert id_tokens.accept(late, KEYS, EXPECTED, NOW).subject == "vera"
    assert id_tokens.accept(early, KEYS, EXPECTED, NOW).subject == "vera"


def test_several_audiences_are_accepted_for_this_party() -> None:
    token = signed(aud=[CLIENT, "another"], azp=CLIENT)
    assert id_tokens.accept(token, KEYS, EXPECTED, NOW).subject == "vera"


def test_a_renewed_token_has_the_subject_of_the_first_one() -> None:
    renewed = Expected(ISSUER, CLIENT, subject="vera")
    assert id_tokens.accept(signed(nonce=None), KEYS, renewed, NOW).subject == "vera"
    with pytest.raises(LoginRefusedError, match="sub"):
        id_tokens.accept(signed(nonce=None, sub="otto"), KEYS, renewed, NOW)


def test_a_token_that_the_provider_did_not_sign_is_refused() -> None:
    another = RSAKey.generate_key(2048, {"kid": "one"})
    with pytest.raises(LoginRefusedError, match="signature"):
        id_tokens.accept(signed(another), KEYS, EXPECTED, NOW)


def test_an_unsigned_token_and_one_signed_by_the_public_key_are_refused() -> None:
    """The public key as the secret of HMAC is the confusion of algorithms."""
    confused, unsigned = forged("HS256", KEY.as_pem(private=False)), forged("none", b"")
    for token in (confused, unsigned, "no token", "", "a.b.c"):
        with pytest.raises(LoginRefusedError):
            id_tokens.accept(token, KEYS, EXPECTED, NOW)


def test_an_unknown_key_differs_from_a_wrong_signature() -> None:
    """The provider may have changed its keys."""
    with pytest.raises(id_tokens.UnknownKeyError):
        id_tokens.accept(
            signed(), KeySet([RSAKey.generate_key(2048, {"kid": "two"})]), EXPECTED, NOW
        )


@pytest.mark.parametrize("groups", [None, []])
def test_a_missing_required_claim_is_named_with_what_to_do(groups: list[str] | None) -> None:
    expected = Expected(ISSUER, CLIENT, nonce="n1", required_claims=("groups",))
    with pytest.raises(LoginRefusedError) as caught:
        id_tokens.accept(signed(groups=groups), KEYS, expected, NOW)
    assert "no groups; it has aud, exp" in caught.value.reason
    assert "STROM_CONSOLE_OIDC_SCOPES" in caught.value.next_step
    assert id_tokens.accept(signed(groups=["ml"]), KEYS, expected, NOW).subject == "vera"
