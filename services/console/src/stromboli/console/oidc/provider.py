"""The identity provider: discovery, keys, and tokens for codes and refresh tokens.

Discovery and keys are read on first use and kept for ``KEPT_S``. An ID token with an unknown key
causes another read immediately (rotation, or a provider that restarted with new keys). After a read
that did not find the key, there is no other such read for ``AGAIN_AFTER_S``, so that not every such
token causes a request. The console starts even if its provider does not answer.
"""

import asyncio
import math
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
import msgspec
import structlog
from joserfc import errors as jose
from joserfc.jwk import KeySet
from oauthlib import oauth2

from stromboli.console.oidc import id_tokens, transport
from stromboli.console.oidc.errors import LoginRefusedError, ProviderUnavailableError
from stromboli.console.oidc.id_tokens import ASK_ADMINISTRATOR, Expected, IdToken
from stromboli.console.oidc.pending import PendingLogin
from stromboli.console.settings import ConsoleSettings

DISCOVERY = "/.well-known/openid-configuration"
KEPT_S = 900.0
AGAIN_AFTER_S = 30.0
MOST_DESCRIPTION_CHARACTERS = 300
_log = structlog.get_logger(__name__)


class Metadata(msgspec.Struct, frozen=True):
    """The fields of the discovery document that the console uses."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str = ""
    revocation_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class TokenAnswer(msgspec.Struct, frozen=True):
    """The answer of the token endpoint: tokens, or an error."""

    id_token: str = ""
    refresh_token: str = ""
    error: str = ""
    error_description: str = ""


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of a session. ``refresh_token``: empty if the provider gave none."""

    id_token: IdToken
    refresh_token: str


class Discovered(msgspec.Struct, frozen=True):
    """The provider's metadata and keys, with the steady clock's time of the read."""

    metadata: Metadata
    keys: KeySet
    authority: ssl.SSLContext
    read_at: float


class Provider:
    """Client of the configured provider. ``wall``: seconds since 1970; ``now``: seconds of a steady
    clock."""

    def __init__(
        self,
        settings: ConsoleSettings,
        wall: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._wall = wall
        self._now = now
        self._discovered: Discovered | None = None
        self._discovering = asyncio.Lock()
        self._failure: tuple[float, ProviderUnavailableError] | None = None
        self._missing_at = -math.inf
        """When the keys were last read without the key of a token among them."""

    async def authorization_url(self, login: PendingLogin, redirect_uri: str) -> str:
        """The address at the provider where a login begins. Raises ProviderUnavailableError."""
        metadata = (await self._discovery()).metadata
        client = self._client()
        url: str = client.prepare_request_uri(
            metadata.authorization_endpoint,
            redirect_uri=redirect_uri,
            scope=list(self._settings.oidc_scopes),
            state=login.state,
            nonce=login.nonce,
            code_challenge=client.create_code_challenge(login.verifier, "S256"),
            code_challenge_method="S256",
        )
        return url

    async def exchange(
        self, answer: Mapping[str, str], login: PendingLogin, redirect_uri: str
    ) -> Tokens:
        """Exchanges the code in the provider's answer for tokens. The caller has checked the
        ``state`` of the answer. Raises LoginRefusedError and ProviderUnavailableError."""
        discovered = await self._discovery()
        issuer, metadata = answer.get("iss", ""), discovered.metadata
        is_required = metadata.authorization_response_iss_parameter_supported
        if issuer != metadata.issuer and (issuer or is_required):
            raise LoginRefusedError("Another identity provider answered.", "Log in again.")
        if "error" in answer:
            raise _refusal(answer["error"], answer.get("error_description", ""))
        form = self._client().prepare_request_body(
            code=answer.get("code", ""),
            redirect_uri=redirect_uri,
            code_verifier=login.verifier,
            include_client_id=False,
        )
        return await self._tokens(discovered, form, self._expected(nonce=login.nonce))

    async def refresh(self, tokens: Tokens) -> Tokens:
        """Exchanges a session's refresh token for new tokens. Raises LoginRefusedError if the
        provider refuses, for example because the user was removed, and
        ProviderUnavailableError."""
        if not tokens.refresh_token:
            raise LoginRefusedError("Your login has ended.", "Log in again.")
        discovered = await self._discovery()
        form = self._client().prepare_refresh_body(refresh_token=tokens.refresh_token)
        expected = self._expected(subject=tokens.id_token.subject)
        return await self._tokens(discovered, form, expected, tokens.refresh_token)

    async def end(self, tokens: Tokens, return_to: str) -> str:
        """Revokes a session's refresh token if the provider has an endpoint for that. Returns the
        address at which the browser ends its login at the provider; empty without one. Errors are
        only logged, since the console's session has ended anyway."""
        try:
            discovered = await self._discovery()
            address = discovered.metadata.revocation_endpoint
            if address and tokens.refresh_token:
                form = {"token": tokens.refresh_token, "token_type_hint": "refresh_token"}
                await self._post(discovered, address, urlencode(form))
        except ProviderUnavailableError as error:
            _log.warning("tokens are not revoked at the provider", error=str(error))
            return ""
        address = discovered.metadata.end_session_endpoint
        if not address:
            return ""
        # Without id_token_hint: tokens stay on the server, so the provider asks the user.
        query = {"client_id": self._settings.oidc_client_id, "post_logout_redirect_uri": return_to}
        return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(query)}"

    # --- tokens ------------------------------------------------------------------------------

    async def _tokens(
        self, discovered: Discovered, form: str, expected: Expected, refresh_token: str = ""
    ) -> Tokens:
        """Requests tokens. ``refresh_token``: kept if the answer has none."""
        sent = await self._post(discovered, discovered.metadata.token_endpoint, form)
        answer = sent.read(TokenAnswer)
        if answer.error or sent.status != httpx.codes.OK:
            raise _refusal(answer.error or f"status {sent.status}", answer.error_description)
        if not answer.id_token:
            raise LoginRefusedError("The identity provider gave no ID token.", "Log in again.")
        try:
            accepted = self._accepted(answer.id_token, discovered, expected)
        except id_tokens.UnknownKeyError:
            if self._now() - self._missing_at >= AGAIN_AFTER_S:
                discovered = await self._discovery(outdated=discovered)
            try:
                accepted = self._accepted(answer.id_token, discovered, expected)
            except id_tokens.UnknownKeyError:
                self._missing_at = max(self._missing_at, discovered.read_at)
                address = discovered.metadata.jwks_uri
                message = f"{address}: it lacks the key of an ID token"
                raise ProviderUnavailableError(message) from None
        return Tokens(accepted, answer.refresh_token or refresh_token)

    def _accepted(self, raw: str, discovered: Discovered, expected: Expected) -> IdToken:
        return id_tokens.accept(raw, discovered.keys, expected, self._wall())

    def _expected(self, nonce: str = "", subject: str = "") -> Expected:
        settings = self._settings
        required = settings.oidc_required_claims
        return Expected(settings.oidc_issuer, settings.oidc_client_id, nonce, subject, required)

    def _client(self) -> Any:
        return oauth2.WebApplicationClient(self._settings.oidc_client_id)

    # --- requests ----------------------------------------------------------------------------

    async def _discovery(self, outdated: Discovered | None = None) -> Discovered:
        """Metadata and keys that were read at most ``KEPT_S`` ago and are not ``outdated``. Raises
        ProviderUnavailableError: requests that wait for the same read fail together with it,
        instead of one after another."""
        asked_at = self._now()
        async with self._discovering:
            discovered = self._discovered
            is_kept = discovered is not None and self._now() - discovered.read_at <= KEPT_S
            if discovered is not None and is_kept and discovered is not outdated:
                return discovered
            if self._failure is not None and self._failure[0] > asked_at:
                raise ProviderUnavailableError(str(self._failure[1]))
            try:
                discovered = self._discovered = await self._discover()
            except ProviderUnavailableError as error:
                self._failure = (self._now(), error)
                raise
            return discovered

    async def _discover(self) -> Discovered:
        issuer = self._settings.oidc_issuer
        authority = transport.certificate_authority(self._settings.oidc_ca_file)
        answer = await transport.get(authority, issuer.rstrip("/") + DISCOVERY)
        metadata = answer.read(Metadata)
        if metadata.issuer != issuer:
            why = f"it names the issuer {metadata.issuer}: set STROM_CONSOLE_OIDC_ISSUER to it"
            raise ProviderUnavailableError(f"{issuer}: {why}")
        published = await transport.get(authority, metadata.jwks_uri)
        return Discovered(metadata, _key_set(published), authority, self._now())

    async def _post(self, discovered: Discovered, address: str, form: str) -> transport.Answer:
        """Posts a form with the client's credentials, by a method that the provider supports."""
        client_id, secret = self._settings.oidc_client_id, self._secret()
        methods = discovered.metadata.token_endpoint_auth_methods_supported
        if secret and "client_secret_basic" in methods:
            # RFC 6749, section 2.3.1: both are encoded before they are joined.
            basic = httpx.BasicAuth(quote(client_id, safe=""), quote(secret, safe=""))
            return await transport.post(discovered.authority, address, form, basic)
        own = {"client_id": client_id} | ({"client_secret": secret} if secret else {})
        form = f"{form}&{urlencode(own)}"
        return await transport.post(discovered.authority, address, form, httpx.Auth())

    def _secret(self) -> str:
        """The client's secret, read for each request, since its file may be replaced."""
        file = self._settings.oidc_client_secret_file
        try:
            return Path(file).read_text(encoding="utf-8").strip() if file else ""
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", "") or "it is not UTF-8 text"
            raise ProviderUnavailableError(
                f"STROM_CONSOLE_OIDC_CLIENT_SECRET_FILE={file}: {why}"
            ) from None


def _key_set(published: transport.Answer) -> KeySet:
    jwks = published.read(dict[str, Any])
    try:
        return KeySet.import_key_set(jwks)  # type: ignore[arg-type]  # checked by the import
    except (jose.JoseError, ValueError, KeyError, TypeError) as error:
        raise ProviderUnavailableError(f"{published.address}: invalid key set: {error!r}") from None


def _refusal(code: str, description: str) -> LoginRefusedError:
    """An error of the provider (RFC 6749, sections 4.1.2.1 and 5.2) with the next step."""
    detail = f": {description[:MOST_DESCRIPTION_CHARACTERS]}" if description else ""
    match code:
        case "access_denied":
            return LoginRefusedError(
                f"The identity provider denied access{detail}.",
                "If you did not decline, ask an administrator of the provider for access.",
            )
        case "invalid_client" | "unauthorized_client":
            return LoginRefusedError(
                f"The identity provider does not accept this console as its client ({code})"
                f"{detail}.",
                "Ask an administrator to check STROM_CONSOLE_OIDC_CLIENT_ID and "
                "STROM_CONSOLE_OIDC_CLIENT_SECRET_FILE.",
            )
        case "invalid_grant":
            return LoginRefusedError(f"The login is not valid any more{detail}.", "Log in again.")
        case "login_required" | "interaction_required" | "temporarily_unavailable":
            return LoginRefusedError(
                f"The login did not complete ({code}){detail}.", "Log in again."
            )
        case "invalid_scope":
            return LoginRefusedError(
                f"The identity provider does not support a requested scope{detail}.",
                "Ask an administrator to correct STROM_CONSOLE_OIDC_SCOPES.",
            )
        case _:
            return LoginRefusedError(
                f"The identity provider rejected the login ({code[:100]}){detail}.",
                ASK_ADMINISTRATOR,
            )
