"""The HTTP server for queries. Admission is its only client, and checks the rights of users.

``POST /queries/attempts``, ``jobs``, ``evictions``, ``changes``, ``explanations`` and ``usage``
take a query as JSON and answer with what ``accounting.History`` returns. The bearer token is a
secret that both services share.
"""

import hmac
from typing import Any

from litestar import Litestar, Request, Response, post
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException
from litestar.handlers import BaseRouteHandler
from litestar.params import JSONBody

from stromboli.shared import errors
from stromboli.shared.api.views import accounting

BODY_LIMIT_BYTES = 64 * 1024


def app(history: accounting.History, token: str) -> Litestar:
    """The application. An empty token allows every client: for loopback only."""

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        credential = connection.headers.get("authorization", "").removeprefix("Bearer ")
        if token and not hmac.compare_digest(credential.encode(), token.encode()):
            raise NotAuthorizedException(
                "the bearer token is not the token of this history service"
            )

    @post("/queries/attempts", status_code=200)
    async def attempts(data: JSONBody[accounting.AttemptQuery]) -> accounting.AttemptPage:
        return await history.attempts(data)

    @post("/queries/jobs", status_code=200)
    async def jobs(data: JSONBody[accounting.JobQuery]) -> accounting.JobPage:
        return await history.jobs(data)

    @post("/queries/evictions", status_code=200)
    async def evictions(data: JSONBody[accounting.EvictionQuery]) -> accounting.EvictionPage:
        return await history.evictions(data)

    @post("/queries/changes", status_code=200)
    async def changes(data: JSONBody[accounting.ChangeQuery]) -> accounting.ChangePage:
        return await history.changes(data)

    @post("/queries/explanations", status_code=200)
    async def explanations(
        data: JSONBody[accounting.ExplanationQuery],
    ) -> accounting.ExplanationPage:
        return await history.explanations(data)

    @post("/queries/usage", status_code=200)
    async def usage(data: JSONBody[accounting.UsageQuery]) -> accounting.UsageReport:
        return await history.usage(data)

    return Litestar(
        [attempts, jobs, evictions, changes, explanations, usage],
        guards=[guard],
        exception_handlers={
            errors.InvalidError: _refused(422),
            errors.TransientError: _refused(503),
        },
        openapi_config=None,
        logging_config=None,
        request_max_body_size=BODY_LIMIT_BYTES,
    )


def _refused(status: int) -> Any:
    def answer(_: Request[Any, Any, Any], error: errors.ExternalError) -> Response[dict[str, str]]:
        return Response({"what": error.what, "reason": error.reason}, status_code=status)

    return answer
