"""The right that each route needs, and the guard that checks it.

A route states its rights as ``opt=authorization.needs(authorization.one("get", kinds.JOBS))``.
Routes that take objects have ``OF_OBJECTS``: the admission pipeline checks the rights for each
object. A route without one of these options is closed to accounts.
"""

import hmac
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from stromboli.admission import problems
from stromboli.admission.auth import authentication
from stromboli.shared import errors
from stromboli.shared.api.kinds import Kind
from stromboli.shared.cluster import accounts
from stromboli.shared.cluster.accounts import Right
from stromboli.shared.token_buckets import TokenBuckets

Connection = ASGIConnection[Any, Any, Any, Any]
Guard = Callable[[Connection, BaseRouteHandler], Awaitable[None]]
OPT = "needs"
WRONG_TOKEN = (
    "the token is not the one that the server generated at its start; strom and stromboli.client "
    "find it for the user who started the server, unless STROM_TOKEN or STROM_TOKEN_FILE names "
    "another one"
)
OPEN = ("/livez", "/readyz", "/schema")
"""Paths without authentication: health and the API description."""


class RequiredRight(msgspec.Struct, frozen=True):
    """A right that a route requires: on the object named by the path, on all objects of the path's
    namespace (or of all namespaces, if the path has none), or on all objects of the namespace in
    the query.
    """

    verb: str
    kind: Kind[Any]
    of: Literal["object", "path", "query"]
    subresource: str = ""

    def right(self, connection: Connection) -> Right:
        """The right for a request: on exactly the names that its handler receives."""
        path = connection.path_params
        namespace = (
            _query_namespace(connection) if self.of == "query" else path.get("namespace", "")
        )
        name = path["name"] if self.of == "object" else ""
        return accounts.right(self.verb, self.kind, namespace, name, self.subresource)


def one(verb: str, kind: Kind[Any], subresource: str = "") -> RequiredRight:
    """The right to a verb on the object that the path names."""
    return RequiredRight(verb, kind, "object", subresource)


def many(verb: str, kind: Kind[Any]) -> RequiredRight:
    """The right to a verb on all objects of a kind in the path's namespace; without one, in all
    namespaces."""
    return RequiredRight(verb, kind, "path")


def many_by_query(verb: str, kind: Kind[Any]) -> RequiredRight:
    """The right to a verb on all objects of a kind in the query's namespace, or in all
    namespaces."""
    return RequiredRight(verb, kind, "query")


def needs(*rights: RequiredRight) -> dict[str, Any]:
    """All of these rights, for a route's ``opt``."""
    return {OPT: rights}


OF_OBJECTS: dict[str, Any] = {OPT: ()}
"""For a route's ``opt``: an account is required, and each object in the body is authorized
separately.
"""


async def allow_local(connection: Connection, _: BaseRouteHandler) -> None:
    """The guard of a server without accounts and without a token."""
    connection.scope["user"] = authentication.LOCAL_PRINCIPAL


def require_token(token: str) -> Guard:
    """The guard of a server on loopback without accounts: the holder of its token has all
    rights.
    """

    async def guard(connection: Connection, _: BaseRouteHandler) -> None:
        if not is_open(connection.scope["path"]):
            bearer_token = authentication.bearer(connection.headers.get("authorization"))
            if not hmac.compare_digest(bearer_token.encode(), token.encode()):
                raise authentication.UnauthenticatedError(WRONG_TOKEN)
        connection.scope["user"] = authentication.LOCAL_PRINCIPAL

    return guard


def require_rights(
    authenticator: authentication.Authenticator,
    audiences: Sequence[str],
    limits: TokenBuckets | None = None,
) -> Guard:
    """The guard of a server with accounts: authenticates the client and requires the route's
    rights. ``limits``: requests per user; a user beyond them gets a TooManyRequestsError."""

    async def guard(connection: Connection, handler: BaseRouteHandler) -> None:
        rule: tuple[RequiredRight, ...] | None = handler.opt.get(OPT)
        is_question = connection.scope.get("method") == "OPTIONS"
        if rule is None and (is_question or is_open(connection.scope["path"])):
            return
        token = authentication.bearer(connection.headers.get("authorization"))
        principal = await authenticator.authenticate(token, audiences)
        wait_s = limits.take(principal.scope, time.monotonic()) if limits is not None else 0.0
        if wait_s:
            raise problems.TooManyRequestsError(wait_s)
        if rule is None:
            what = connection.scope["path"]
            raise errors.ForbiddenError(what, "accounts have no access to this path")
        connection.scope["user"] = principal
        await authentication.require(principal, [each.right(connection) for each in rule])

    return guard


def is_open(path: str) -> bool:
    """Whether a path needs no authentication."""
    return any(path == each or path.startswith(f"{each}/") for each in OPEN)


def _query_namespace(connection: Connection) -> str:
    """The namespace of the query. Raises RejectedError if the parameter occurs twice: guard and
    handler might use different values."""
    requested: list[str] = connection.query_params.getall("namespace", [])
    if len(requested) > 1:
        raise problems.invalid("namespace", "it is given twice", "one namespace, or none")
    return requested[0] if requested else ""
