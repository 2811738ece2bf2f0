"""Sessions of browsers: a cookie names one, the token stays in this process.

A session is made from a token that REST accepts. Its cookie is random, ``HttpOnly`` and
``SameSite=Strict``; forms carry a second secret (``csrf``). Sessions end with their time, with
``log out``, and with this process: tokens are never written to a disk.

A session that began at an identity provider also holds the provider's tokens. ``renew`` replaces
them shortly before the ID token expires, and only for a request: a closed browser keeps no login
alive at the provider.
"""

import asyncio
import hmac
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec
import structlog

from stromboli.client import AsyncClient, errors
from stromboli.client.credentials import Token
from stromboli.client.operations import calls
from stromboli.console.core.cluster_rows import NodeFacts
from stromboli.console.live_rows import LiveLists
from stromboli.console.oidc.errors import LoginRefusedError, ProviderUnavailableError
from stromboli.console.oidc.provider import Provider, Tokens
from stromboli.console.settings import ConsoleSettings
from stromboli.shared.api.topology import HyperNode
from stromboli.shared.api.views.expected_start import ExpectedStart
from stromboli.shared.network_topology import Layout

ID_BYTES = 32
MOST_OF_USER = 50
"""Maximum sessions of one user, so that one token cannot log all other users out."""
RENEW_BEFORE_S = 30.0
"""How long before the end of an ID token it is renewed: longer than a request takes. REST ends
streams regularly to check their token again."""
AGAIN_AFTER_S = 5.0
"""Delay before the next renewal of a session whose provider did not answer."""
_log = structlog.get_logger(__name__)


def connect(settings: ConsoleSettings, token: Token = "") -> AsyncClient:
    """A client of REST. Raises ClientError for a token that would be sent unencrypted, and for a
    CA file that cannot be read."""
    return AsyncClient(settings.server, token=token, ca_file=settings.ca_file or None)


class Domains(msgspec.Struct, frozen=True):
    """The topology domains, with the HyperNodes and the node labels that define them."""

    hyper_nodes: Sequence[HyperNode]
    labels: Mapping[str, Mapping[str, str]]
    layout: Layout

    @property
    def tier_names(self) -> dict[str, str]:
        """HyperNode -> the name of its tier."""
        return {it.metadata.name: it.spec.tier_name for it in self.hyper_nodes}


class ProviderLogin:
    """A session's tokens from the identity provider, replaced at each renewal. ``again_at``: no
    renewal is tried before this time of the steady clock."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.renewing = asyncio.Lock()
        self.again_at = -math.inf

    def token(self) -> str:
        """The ID token, for requests to REST."""
        return self.tokens.id_token.raw


class Session:
    """A logged-in browser. ``user`` is empty on a server without accounts. ``namespace``: shown
    by pages whose URL names none; empty for all. ``login``: the tokens from an identity provider;
    None for a session that began with a token."""

    def __init__(
        self,
        client: AsyncClient,
        user: str,
        namespace: str,
        ends_at: float,
        login: "ProviderLogin | None" = None,
    ) -> None:
        self.id = secrets.token_urlsafe(ID_BYTES)
        self.csrf = secrets.token_urlsafe(ID_BYTES)
        self.client = client
        self.user = user
        self.namespace = namespace
        self.ends_at = ends_at
        self.login = login
        self.starts: dict[str, tuple[datetime, Mapping[str, ExpectedStart]]] = {}
        """Namespace -> when its pending jobs are expected to start, and when that was read."""
        self.nodes: tuple[datetime, Sequence[NodeFacts]] | None = None
        """All nodes, and when they were read."""
        self.domains: tuple[datetime, Domains] | None = None
        """The topology domains, and when they were read."""

    def accepts(self, csrf: str) -> bool:
        """Whether the ``csrf`` value of a form is this session's."""
        return hmac.compare_digest(self.csrf.encode(), csrf.encode())


class Sessions:
    """All sessions of this process. ``lists`` are closed with their session. ``provider``: renews
    tokens. ``now``: seconds of a steady clock; ``wall``: seconds since 1970."""

    def __init__(
        self,
        settings: ConsoleSettings,
        lists: LiveLists,
        provider: Provider | None = None,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._lists = lists
        self._provider = provider
        self._now = now
        self._wall = wall
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    async def open(self, token: str, namespace: str, tokens: Tokens | None = None) -> Session:
        """Opens a session for a token. ``token`` is empty for a server that is open to all, or if
        ``tokens`` are given. Raises ClientError if REST does not accept the token."""
        login = None if tokens is None else ProviderLogin(tokens)
        client = connect(self._settings, token if login is None else login.token)
        try:
            user = (await client.send(calls.me())).name
        except BaseException:
            await client.__aexit__(None, None, None)
            raise
        while (surplus := self._surplus(user)) is not None:
            await self.close(surplus)
        ends_at = self._now() + self._settings.session_hours * 3600
        session = Session(client, user, namespace, ends_at, login)
        self._sessions[session.id] = session
        return session

    def get(self, cookie: str) -> Session | None:
        """The session of a cookie; None if there is none or it has ended."""
        session = self._sessions.get(cookie)
        if session is None or session.ends_at < self._now():
            return None
        self._sessions.move_to_end(cookie)
        return session

    async def renew(self, session: Session) -> None:
        """Renew the tokens of a session if they expire soon. Raises UnauthenticatedError if the
        provider refuses, which ends the session, and UnavailableError if it does not answer and the
        token has expired."""
        login = session.login
        if login is None or self._provider is None or self._left_s(login) > RENEW_BEFORE_S:
            return
        async with login.renewing:  # a page and its stream ask at the same time
            if self._left_s(login) > RENEW_BEFORE_S:
                return
            try:
                if self._now() < login.again_at:
                    raise ProviderUnavailableError("it did not answer the last request")
                login.tokens = await self._provider.refresh(login.tokens)
            except ProviderUnavailableError as error:
                self._unavailable(login, error)
            except LoginRefusedError as error:
                # Without a refresh token the ID token is used to its end.
                if login.tokens.refresh_token or self._left_s(login) <= 0:
                    _log.info("session ended by the provider", user=session.user, error=str(error))
                    self.end(session.id)
                    raise errors.UnauthenticatedError("login", error.reason, 401) from None

    def _unavailable(self, login: ProviderLogin, error: ProviderUnavailableError) -> None:
        if self._now() >= login.again_at:
            login.again_at = self._now() + AGAIN_AFTER_S
            _log.warning("tokens are not renewed", error=str(error))
        if self._left_s(login) <= 0:
            what = "identity provider"
            raise errors.UnavailableError(what, f"your login cannot be renewed: {error}", 503)

    def _left_s(self, login: ProviderLogin) -> float:
        return login.tokens.id_token.expires_at - self._wall()

    def end(self, cookie: str) -> None:
        """End a session now; ``close_ended`` closes its lists and connections."""
        session = self._sessions.get(cookie)
        if session is not None:
            session.ends_at = -math.inf

    async def close(self, cookie: str) -> None:
        """Ends a session, and closes its lists and its client."""
        session = self._sessions.pop(cookie, None)
        if session is not None:
            await self._lists.close(session.id)
            await session.client.__aexit__(None, None, None)

    async def close_ended(self) -> None:
        """Close the sessions whose time is over."""
        for cookie, session in list(self._sessions.items()):
            if session.ends_at < self._now():
                await self.close(cookie)

    async def close_all(self) -> None:
        """Ends all sessions, and closes their lists and clients."""
        while self._sessions:
            await self.close(next(iter(self._sessions)))

    def __len__(self) -> int:
        return len(self._sessions)

    def _surplus(self, user: str) -> str | None:
        """The session to close before this user opens one: the least recently used one of the
        user, or of all; None if there is room."""
        candidates = [cookie for cookie, session in self._sessions.items() if session.user == user]
        if len(candidates) < MOST_OF_USER:
            candidates = list(self._sessions)
            if len(candidates) < self._settings.most_sessions:
                return None
        return candidates[0]
