"""A small OpenID Connect provider with one user, for rules that need a provider that misbehaves.

It logs the user in without a page: an authorization request is answered with a code at once. What
real providers do is tested with one of others.
"""

import base64
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import trustme
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from litestar import Litestar, Request, Response, get, post

from stromboli.shared.runtime import http

CLIENT, SECRET = "console", "s3cret/+"
Web = Request[Any, Any, Any]


class IdentityProvider:
    """Its behaviour may be changed at any time.

    ``claims``: of the next ID tokens, over the usual ones; ``life_s``: of ID tokens; ``refuses``:
    the error of the token endpoint; ``extra``: more metadata; ``requests``: the forms that the
    token and the revocation endpoint received; ``keys_read``: how often its keys were read.
    """

    def __init__(self) -> None:
        self.issuer = ""
        self.claims: dict[str, Any] = {}
        self.life_s = 3600.0
        self.refuses = ""
        self.is_away = False
        self.extra: dict[str, Any] = {}
        self.requests: list[dict[str, str]] = []
        self.last_refresh_token = ""
        self.keys_read = 0
        self._key = self._published = _key()
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: set[str] = set()

    def rotate(self) -> None:
        """Sign with a new key, and publish that alone."""
        self._key = self._published = _key()

    def sign_with_unpublished_key(self) -> None:
        """Sign with a new key, and publish the old one, until ``rotate``."""
        self._key = _key()

    def token(self, **claims: Any) -> str:
        """An ID token."""
        now = time.time()
        usual = {"iss": self.issuer, "aud": CLIENT, "sub": "vera", "iat": now - 1}
        given = {**usual, "exp": now + self.life_s, **claims, **self.claims}
        kept = {name: value for name, value in given.items() if value is not None}
        return jwt.encode({"alg": "RS256", "kid": self._key.kid}, kept, self._key)

    def app(self) -> Litestar:
        """Its routes."""

        @get("/.well-known/openid-configuration")
        async def discovery() -> Response[dict[str, Any]]:
            found = {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                **self.extra,
            }
            return Response(found, status_code=503 if self.is_away else 200)

        @get("/keys")
        async def keys() -> dict[str, Any]:
            self.keys_read += 1
            return dict(KeySet([self._published]).as_dict())

        @get("/authorize")
        async def authorize(request: Web) -> Response[bytes]:
            query = {name: values[-1] for name, values in request.query_params.dict().items()}
            code = secrets.token_urlsafe(8)
            self._codes[code] = query
            answer = urlencode({"code": code, "state": query["state"]})
            return Response(
                b"", status_code=302, headers={"location": f"{query['redirect_uri']}?{answer}"}
            )

        @post("/token", status_code=200)
        async def token(request: Web) -> Response[dict[str, Any]]:
            form = dict(parse_qsl((await request.body()).decode()))
            self.requests.append({**form, "authorization": request.headers["authorization"]})
            if self.is_away:
                return Response({}, status_code=503)
            if error := self.refuses or self._problem(form):
                return Response({"error": error}, status_code=400)
            claims = {}
            if "code" in form:
                claims["nonce"] = self._codes.pop(form["code"])["nonce"]
            self._refresh_tokens.discard(form.get("refresh_token", ""))
            refresh = secrets.token_urlsafe(8)
            self._refresh_tokens.add(refresh)
            self.last_refresh_token = refresh
            return Response({"id_token": self.token(**claims), "refresh_token": refresh})

        @post("/revoke", status_code=200)
        async def revoke(request: Web) -> dict[str, Any]:
            self.requests.append(dict(parse_qsl((await request.body()).decode())))
            return {}

        return Litestar([discovery, keys, authorize, token, revoke], openapi_config=None)

    def _problem(self, form: dict[str, str]) -> str:
        """The error of a token request; empty for a good one."""
        if form["grant_type"] == "refresh_token":
            return "" if form["refresh_token"] in self._refresh_tokens else "invalid_grant"
        requested = self._codes.get(form["code"])
        if requested is None or requested["redirect_uri"] != form["redirect_uri"]:
            return "invalid_grant"
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return "" if challenge == requested["code_challenge"] else "invalid_grant"


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[IdentityProvider]:
    """The provider on a free port while inside; ``ca.pem`` in the folder is its authority, and
    ``secret`` the client's secret."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    (folder / "secret").write_text(f"{SECRET}\n")
    chain = folder / "provider.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(chain))
    provider = IdentityProvider()
    bound = http.listen("127.0.0.1", 0)
    async with http.serving(provider.app(), bound, certificate_file=str(chain)) as port:
        provider.issuer = f"https://127.0.0.1:{port}"
        yield provider


def _key() -> RSAKey:
    made = RSAKey.generate_key(2048)
    made.ensure_kid()
    return made
