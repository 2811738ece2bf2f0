"""Sessions of browsers: a cookie names one, the token stays in this process.

A session is made from a token that REST accepts. Its cookie is random, ``HttpOnly`` and
``SameSite=Strict``; forms carry a second secret (``csrf``). Sessions end with their time, with
``log out``, and with this process: tokens are never written to a disk.
"""

import hmac
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from stromboli.client import AsyncClient, calls
from stromboli.console.core.cluster_rows import NodeFacts
from stromboli.console.live_rows import LiveLists
from stromboli.console.settings import ConsoleSettings
from stromboli.shared.api.expected_start import ExpectedStart

ID_BYTES = 32
MOST_OF_USER = 50
"""Sessions of one user: a token alone cannot log all others out."""


def connect(settings: ConsoleSettings, token: str = "") -> AsyncClient:
    """A client of REST. Raises ClientError for a token that would be sent unencrypted, and for an
    authority that cannot be read."""
    return AsyncClient(settings.server, token=token, ca_file=settings.ca_file or None)


class Session:
    """A logged-in browser. ``user`` is empty on a server without accounts. ``namespace``: the one
    that pages show if their URL names none; empty for all."""

    def __init__(self, client: AsyncClient, user: str, namespace: str, ends_at: float) -> None:
        self.id = secrets.token_urlsafe(ID_BYTES)
        self.csrf = secrets.token_urlsafe(ID_BYTES)
        self.client = client
        self.user = user
        self.namespace = namespace
        self.ends_at = ends_at
        self.starts: dict[str, tuple[datetime, Mapping[str, ExpectedStart]]] = {}
        """Namespace -> when its pending jobs are expected to start, and when that was read."""
        self.nodes: tuple[datetime, Sequence[NodeFacts]] | None = None
        """All nodes, and when they were read."""

    def accepts(self, csrf: str) -> bool:
        """Whether a form is one of this session's pages."""
        return hmac.compare_digest(self.csrf.encode(), csrf.encode())


class Sessions:
    """All sessions of this process. ``lists`` are closed with their session."""

    def __init__(
        self,
        settings: ConsoleSettings,
        lists: LiveLists,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._lists = lists
        self._now = now
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    async def open(self, token: str, namespace: str) -> Session:
        """A new session for a token; an empty one for a server that is open to all. Raises
        ClientError if REST does not accept the token."""
        client = connect(self._settings, token)
        try:
            user = (await client.send(calls.me())).name
        except BaseException:
            await client.__aexit__(None, None, None)
            raise
        while (surplus := self._surplus(user)) is not None:
            await self.close(surplus)
        ends_at = self._now() + self._settings.session_hours * 3600
        session = Session(client, user, namespace, ends_at)
        self._sessions[session.id] = session
        return session

    def get(self, cookie: str) -> Session | None:
        """The session of a cookie; None if there is none or it has ended."""
        session = self._sessions.get(cookie)
        if session is None or session.ends_at < self._now():
            return None
        self._sessions.move_to_end(cookie)
        return session

    def end(self, cookie: str) -> None:
        """End a session now; ``close_ended`` closes its lists and connections."""
        session = self._sessions.get(cookie)
        if session is not None:
            session.ends_at = -math.inf

    async def close(self, cookie: str) -> None:
        """End a session, and close what it has."""
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
        """Close everything."""
        while self._sessions:
            await self.close(next(iter(self._sessions)))

    def __len__(self) -> int:
        return len(self._sessions)

    def _surplus(self, user: str) -> str | None:
        """The session to close before this user opens one: the one unused for longest, of the user
        or of all; None if there is room."""
        candidates = [cookie for cookie, found in self._sessions.items() if found.user == user]
        if len(candidates) < MOST_OF_USER:
            candidates = list(self._sessions)
            if len(candidates) < self._settings.most_sessions:
                return None
        return candidates[0]
