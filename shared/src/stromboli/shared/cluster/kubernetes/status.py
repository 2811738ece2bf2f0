"""Translates an API server's error responses to ``stromboli.shared.errors``.

Source: ``Status`` in Kubernetes' API machinery, and observed responses of a server of version 1.34.
Codes alone are ambiguous: 409 is an existing name or a conflict, 422 an invalid object or a JSON
patch that does not apply, 403 a missing right or an object that admission rejected.
"""

import re

import msgspec

from stromboli.shared import decoding, errors

LONGEST_REASON = 2000
"""Maximum length of a server's message in characters; webhooks and proxies may send whole pages."""

_NO_REASON = "the server rejected our request due to an error in our request"
_TOO_LARGE = ("request is too large", "larger than max", "entity too large")
_BUDGET = "DisruptionBudget"
"""The reason of a cause which says that an eviction exceeds a PodDisruptionBudget."""
_MISSING_RIGHT = re.compile(r"User \"[^\"]*\" cannot ")


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the parts of a Status; these have only the fields that this module uses."""


class _Cause(_Part, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(_Part, frozen=True):
    causes: list[_Cause] | None = None
    retry_after_seconds: float = 0.0


class _Status(_Part, frozen=True):
    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


_DECODER = decoding.decoder_of(_Status)


def translate(what: str, code: int, body: bytes, retry_after: str = "") -> errors.ExternalError:
    """The error for a response with HTTP status ``code``.

    ``what`` names verb and object; ``retry_after`` is the value of the header ``Retry-After``, in
    seconds.
    """
    status = _read(code, body)
    reason = _explain(status)
    if code >= 500 and any(sign in reason for sign in _TOO_LARGE):
        return errors.TooLargeError(what, reason)
    if code == 429 and any(cause.reason == _BUDGET for cause in _causes(status)):
        return errors.DisruptionBudgetError(what, reason, _seconds(status, retry_after))
    if code == 429 or (code >= 500 and code != 501):
        kind = errors.UnavailableError if code in (502, 503) else errors.TransientError
        return kind(what, reason, _seconds(status, retry_after))
    return _permanent(status, code, reason)(what, reason)


def translate_event(what: str, body: bytes) -> errors.ExternalError:
    """The error for an ERROR event in a watch, whose code is only in the Status."""
    return translate(what, _read(500, body).code or 500, body)


def _permanent(status: _Status, code: int, reason: str) -> type[errors.PermanentError]:
    if code == 409:
        is_duplicate = status.reason == "AlreadyExists"
        return errors.AlreadyExistsError if is_duplicate else errors.ConflictError
    if code == 422:
        return errors.ConflictError if _is_lost_race(status) else errors.InvalidError
    if code == 403:
        # Quotas, pod security and webhooks also answer with 403, which means an invalid object.
        return errors.ForbiddenError if _MISSING_RIGHT.search(reason) else errors.InvalidError
    known: dict[int, type[errors.PermanentError]] = {
        401: errors.ForbiddenError,
        404: errors.NotFoundError,
        405: errors.UnsupportedError,
        410: errors.ExpiredError,
        413: errors.TooLargeError,
        501: errors.UnsupportedError,
    }
    return known.get(code, errors.InvalidError)


def _is_lost_race(status: _Status) -> bool:
    """Whether a 422 is a conflict and not an invalid object.

    A JSON patch whose ``test`` fails, or whose path does not exist, is answered by 422 without a
    field path; an invalid object always has causes. A uid in a merge patch that is not the object's
    is reported as an immutable field.
    """
    return all(cause.field == "metadata.uid" for cause in _causes(status))


def _causes(status: _Status) -> list[_Cause]:
    return (status.details.causes if status.details else None) or []


def _read(code: int, body: bytes) -> _Status:
    try:
        return decoding.decode(_DECODER, body)
    except msgspec.DecodeError:  # a proxy, or the server's plain "404 page not found"
        text = body.decode(errors="replace").strip()
        return _Status(code=code, message=text or f"HTTP status {code}")


def _explain(status: _Status) -> str:
    """The message, with the causes that it does not already contain."""
    causes = _causes(status)
    messages = [status.message or status.reason]
    for cause in causes:
        if cause.message and cause.message not in messages[0]:
            messages.append(f"{cause.field}: {cause.message}" if cause.field else cause.message)
    text = "; ".join(messages)[:LONGEST_REASON]
    if text == _NO_REASON and not causes:
        text = "the patch does not apply: a test in it fails, or a path does not exist"
    return text


def _seconds(status: _Status, retry_after: str) -> float:
    """The longer of the delays in the status and the header, in seconds; a date in the header is
    ignored."""
    requested = status.details.retry_after_seconds if status.details else 0.0
    return max(requested, float(retry_after)) if retry_after.isdecimal() else requested
