"""Errors as problem+json (RFC 9457), with every violation and the expected value."""

import math
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from stromboli.admission import query_parameters
from stromboli.admission.auth.authentication import ForbiddenError, UnauthenticatedError
from stromboli.admission.core import review_records
from stromboli.admission.idempotency import HEADER, KeyReusedError
from stromboli.admission.review.submitted_objects import RejectedError
from stromboli.shared import errors
from stromboli.shared.messages.admission import Violation
from stromboli.shared.runtime import telemetry

MEDIA_TYPE = "application/problem+json"
_NO_BODY = "'data'"
"""The text of the KeyError that Litestar passes on for a missing body."""


class TooManyRequestsError(Exception):
    """A user sends more requests than the limit allows. ``wait_s``: seconds until the next one."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"too many requests by this user; try again in {math.ceil(wait_s)} s")
        self.wait_s = wait_s


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem details object (RFC 9457). ``violations``: every error in the request, each with
    its path; at most the first thousand.
    """

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    violations: tuple[Violation, ...] = ()


_STATUS: tuple[tuple[type[errors.ExternalError], HTTPStatus], ...] = (
    (errors.NotFoundError, HTTPStatus.NOT_FOUND),
    (errors.ConflictError, HTTPStatus.CONFLICT),
    (errors.ExpiredError, HTTPStatus.GONE),
    (errors.InvalidError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.ForbiddenError, HTTPStatus.FORBIDDEN),
    (errors.TooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (errors.UnsupportedError, HTTPStatus.NOT_IMPLEMENTED),
    (errors.DisruptionBudgetError, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.RateLimitedError, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.TransientError, HTTPStatus.SERVICE_UNAVAILABLE),
)


def status_of(error: errors.ExternalError) -> HTTPStatus:
    """The HTTP status for an error of an external system."""
    return next(
        (status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.BAD_GATEWAY
    )


def invalid(path: str, reason: str, expected: str = "") -> RejectedError:
    """A RejectedError with one violation."""
    return RejectedError((Violation(path=path, reason=reason, expected=expected),))


def _answer(
    status: HTTPStatus, detail: str, violations: tuple[Violation, ...] = ()
) -> Response[Problem]:
    body = Problem(
        title=status.phrase,
        status=status.value,
        detail=review_records.truncated_detail(detail, len(violations)),
        violations=review_records.truncated(violations),
    )
    return Response(body, status_code=status.value, media_type=MEDIA_TYPE)


def _of_rejected(_: Request[Any, Any, Any], error: RejectedError) -> Response[Problem]:
    return _answer(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), error.violations)


def _of_forbidden(_: Request[Any, Any, Any], error: ForbiddenError) -> Response[Problem]:
    return _answer(HTTPStatus.FORBIDDEN, str(error), error.violations)


def _of_unauthenticated(
    _: Request[Any, Any, Any], error: UnauthenticatedError
) -> Response[Problem]:
    answer = _answer(HTTPStatus.UNAUTHORIZED, error.reason)
    answer.headers["www-authenticate"] = 'Bearer realm="stromboli"'
    return answer


def _of_too_many_requests(
    _: Request[Any, Any, Any], error: TooManyRequestsError
) -> Response[Problem]:
    answer = _answer(HTTPStatus.TOO_MANY_REQUESTS, str(error))
    answer.headers["retry-after"] = str(math.ceil(error.wait_s))
    return answer


def _of_external_error(_: Request[Any, Any, Any], error: errors.ExternalError) -> Response[Problem]:
    return _answer(status_of(error), str(error))


def _of_reused_key(_: Request[Any, Any, Any], __: KeyReusedError) -> Response[Problem]:
    why = "this key was used with another request before; send a new key with a new request"
    wrong = Violation(path=HEADER, reason="used before", expected="a new key")
    return _answer(HTTPStatus.UNPROCESSABLE_ENTITY, why, (wrong,))


def _of_http(request: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    extra = error.extra if isinstance(error.extra, list) else []
    handler = request.scope.get("route_handler")
    violations = tuple(
        _invalid_parameter(each, handler) for each in extra if isinstance(each, dict)
    )
    status = HTTPStatus(error.status_code)
    detail = error.detail
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        telemetry.log.error("unexpected error", error=repr(error.__cause__ or error))
        detail = "this is a bug in Stromboli; see the log of admission"
    return _answer(status, detail, violations)


def _invalid_parameter(detail: dict[str, Any], handler: object) -> Violation:
    """The violation for the framework's message about a part of a request. For a missing body the
    framework quotes an internal name.
    """
    if detail.get("message") == _NO_BODY:
        return Violation(path="data", reason="the request has no body", expected="a JSON object")
    path = query_parameters.wire_name(handler, str(detail.get("key", "")))
    return Violation(path=path, reason=str(detail.get("message", "")))


def _of_unreadable_body(_: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """The response for exceptions other than msgspec's that decoding an invalid body raises."""
    is_deep = isinstance(error, RecursionError)
    why = "it is nested too deeply" if is_deep else "it is not UTF-8"
    return _answer(HTTPStatus.BAD_REQUEST, f"the body cannot be read: {why}")


def _of_bug(_: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    telemetry.log.error("unexpected error", error=repr(error), exc_info=error)
    return _answer(
        HTTPStatus.INTERNAL_SERVER_ERROR, "this is a bug in Stromboli; see the log of admission"
    )


HANDLERS: ExceptionHandlersMap = {
    RejectedError: _of_rejected,
    ForbiddenError: _of_forbidden,
    UnauthenticatedError: _of_unauthenticated,
    TooManyRequestsError: _of_too_many_requests,
    errors.ExternalError: _of_external_error,
    KeyReusedError: _of_reused_key,
    HTTPException: _of_http,
    RecursionError: _of_unreadable_body,
    UnicodeDecodeError: _of_unreadable_body,
    Exception: _of_bug,
}
"""Exception handlers of the application: every error becomes a problem."""
