"""Principals: authentication by token, authorization by the cluster's RBAC.

Results are cached for some seconds, because a single view in a client needs dozens of checks. A
revoked right therefore remains effective for that time. If a check cannot be completed, it raises
an error and the request is not admitted. Only digests of tokens are kept.
"""

import collections
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from stromboli.admission import keyed_lock
from stromboli.admission.core import token_claims
from stromboli.shared.cluster import accounts
from stromboli.shared.cluster.accounts import Right, User
from stromboli.shared.messages.admission import Violation

V = TypeVar("V")
MAX_CACHED = 20_000
"""Maximum number of cached results, which take some megabytes."""
MAX_STREAM_S = 300.0
"""How long an account's event stream may last before the client must authenticate again. API
servers end their watches after a similar time; clients reconnect by themselves.
"""
NO_USER = "rest"
"""The user name in reviews on a server without accounts."""


class UnauthenticatedError(Exception):
    """The request carries no token that identifies a user."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ForbiddenError(Exception):
    """The principal lacks rights; nothing was done. ``violations``: each missing right."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        super().__init__("; ".join(violation.reason for violation in violations))
        self.violations = violations


class Principal(Protocol):
    """An authenticated client: a user of the cluster, or the local user."""

    @property
    def name(self) -> str:
        """The user name that reviews and records contain."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The user's groups."""

    @property
    def streams_last_s(self) -> float:
        """Seconds after which an event stream ends, so that rights are checked again."""

    @property
    def scope(self) -> str:
        """A prefix of idempotency keys that is unique to this principal; empty for the local
        user."""

    async def is_allowed(self, right: Right) -> bool:
        """Whether the principal has a right. Raises TransientError if it cannot be checked now."""


class LocalPrincipal:
    """The principal of every client of a server without accounts, which listens on loopback
    only."""

    name = NO_USER
    groups: tuple[str, ...] = ()
    streams_last_s = math.inf
    scope = ""

    async def is_allowed(self, right: Right) -> bool:
        """Always true: the local user has all rights."""
        del right
        return True


LOCAL_PRINCIPAL = LocalPrincipal()


class AccountPrincipal:
    """A user of the cluster."""

    def __init__(
        self,
        user: User,
        ask: Callable[[User, Right], Awaitable[bool]],
        streams_last_s: float,
    ) -> None:
        self._user = user
        self._review = ask
        self.streams_last_s = streams_last_s

    @property
    def name(self) -> str:
        """The user name, from TokenReview."""
        return self._user.name

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of the user, from TokenReview."""
        return self._user.groups

    @property
    def scope(self) -> str:
        """The user's name and uid, so that a new user does not get the scope of a deleted user of
        the same name."""
        return f"{self._user.name}/{self._user.uid}"

    async def is_allowed(self, right: Right) -> bool:
        """Whether the user has a right. The right on objects of every name is checked first,
        because that result is valid for many objects."""
        if right.name and await self._review(self._user, right.of_every_name):
            return True
        return await self._review(self._user, right)


class Authenticator:
    """Authenticates tokens. ``now``: a monotonic clock, in seconds; ``wall``: seconds since
    1970."""

    def __init__(
        self,
        known: accounts.Accounts,
        kept_s: float,
        now: Callable[[], float],
        *,
        most_kept: int = MAX_CACHED,
        streams_last_s: float = MAX_STREAM_S,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._accounts = known
        self._kept_s = kept_s
        self._wall = wall
        self._streams_last_s = streams_last_s
        self._users: TtlCache[User | accounts.UnknownToken] = TtlCache(kept_s, now, most_kept)
        self._rights: TtlCache[bool] = TtlCache(kept_s, now, most_kept)
        self._own_name = ""

    async def authenticate(self, token: str, audiences: Sequence[str]) -> Principal:
        """The principal of a token. Raises UnauthenticatedError; TransientError if the token cannot
        be checked now."""
        if not token:
            raise UnauthenticatedError("the request has no token")
        key = hashlib.sha256("\n".join((*audiences, token)).encode()).digest()
        account = await self._users.get(key, lambda: self._accounts.authenticate(token, audiences))
        if isinstance(account, accounts.UnknownToken):
            raise UnauthenticatedError(account.reason)
        return AccountPrincipal(account, self._may, self._stream_s(token))

    def _stream_s(self, token: str) -> float:
        """Seconds for which a stream with this token lasts. API servers accept a token for some
        time after its ``exp``, because clocks differ. A stream that begins in that time lasts as
        long as a cached review: otherwise clients that reconnect would open streams without a
        pause."""
        expires_at = token_claims.expires_at(token)
        if expires_at is None:
            return self._streams_last_s
        return min(self._streams_last_s, max(expires_at - self._wall(), self._kept_s))

    async def own_username(self) -> str:
        """The user name under which this service authenticates to the API server."""
        if not self._own_name:
            self._own_name = await self._accounts.own_username()
        return self._own_name

    async def _may(self, user: User, right: Right) -> bool:
        key = msgspec.json.encode((user, right), order="deterministic")
        return await self._rights.get(key, lambda: self._accounts.is_allowed(user, right))


async def require(principal: Principal, rights: Iterable[Right], where: str = "") -> None:
    """Return if the principal has all rights. Raises ForbiddenError with each missing right, and
    TransientError if the rights cannot be checked now."""
    missing = await missing_rights(principal, rights, where)
    if missing:
        raise ForbiddenError(missing)


async def missing_rights(
    principal: Principal, rights: Iterable[Right], where: str = ""
) -> tuple[Violation, ...]:
    """The violations for the rights that the principal lacks. ``where``: the part of the request
    that needs the rights."""
    path = f"{where}.rights" if where else "rights"
    return tuple(
        [
            Violation(path=path, reason=each.denial_message(principal.name), expected=each.rule)
            for each in rights
            if not await principal.is_allowed(each)
        ]
    )


class TtlCache(Generic[V]):
    """Caches results for ``kept_s`` seconds. Concurrent requests for one key share one call."""

    def __init__(self, kept_s: float, now: Callable[[], float], limit: int) -> None:
        self._kept_s = kept_s
        self._now = now
        self._most = limit
        self._answers: collections.OrderedDict[bytes, tuple[float, V]] = collections.OrderedDict()
        self._under_way: keyed_lock.KeyedLock[bytes] = keyed_lock.KeyedLock()

    def __len__(self) -> int:
        """The number of cached results."""
        return len(self._answers)

    async def get(self, key: bytes, ask: Callable[[], Awaitable[V]]) -> V:
        """The cached result, or the result of ``ask``. Raises what ``ask`` raises."""
        async with self._under_way.of(key):
            began = self._now()
            known = self._answers.get(key)
            if known is not None and began < known[0]:
                return known[1]
            answer = await ask()
            self._answers[key] = began + self._kept_s, answer
            self._answers.move_to_end(key)
            if len(self._answers) > self._most:
                self._answers.popitem(last=False)
            return answer


def bearer(header: str | None) -> str:
    """The token of an Authorization header (RFC 6750). Raises UnauthenticatedError."""
    scheme, _, token = (header or "").strip().partition(" ")
    if not scheme:
        raise UnauthenticatedError("the request has no token")
    if scheme.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError("the header Authorization is not of the form: Bearer TOKEN")
    return token.strip()
