"""``AdmissionReview`` (``admission.k8s.io/v1``) as bytes: request and response."""

import base64
from typing import Any

import msgspec

from stromboli.shared import decoding
from stromboli.shared.formats import warning_header
from stromboli.shared.jobspec.validation import patch
from stromboli.shared.jobspec.validation.review import Operation
from stromboli.shared.messages.admission import Violation

MAX_MESSAGE_LENGTH = 8 * 1024
"""Maximum characters of a rejection: a job with a thousand violations still fits on one screen."""


class GroupKind(msgspec.Struct, frozen=True):
    """The kind of the reviewed object."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """The apiVersion as in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version


class User(msgspec.Struct, frozen=True):
    """The user of the reviewed request."""

    username: str = ""
    groups: tuple[str, ...] | None = ()


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A review request. ``object`` is null for a deletion, ``old_object`` for a creation."""

    uid: str
    kind: GroupKind
    operation: Operation
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    namespace: str = ""
    user_info: User = User()
    dry_run: bool | None = False


class _Review(msgspec.Struct, frozen=True):
    request: ReviewRequest


_DECODER = decoding.decoder_of(_Review)


def decode_request(body: bytes) -> ReviewRequest:
    """The request. Raises ValueError with the path if ``body`` is not an AdmissionReview."""
    try:
        return decoding.decode(_DECODER, body).request
    except msgspec.DecodeError as error:
        raise ValueError(f"not an AdmissionReview: {error}") from None


def encode_response(
    uid: str,
    violations: tuple[Violation, ...] = (),
    additions: tuple[patch.Add, ...] = (),
    *,
    code: int = 422,
    warnings: tuple[str, ...] = (),
) -> bytes:
    """The response: a rejection with all violations in one message, or an admission with a patch
    and warnings, which clients such as kubectl print.
    """
    response: dict[str, Any] = {"uid": uid, "allowed": not violations}
    if violations:
        message = "; ".join(violation.message for violation in violations)
        if len(message) > MAX_MESSAGE_LENGTH:
            message = f"{message[:MAX_MESSAGE_LENGTH]} ... ({len(violations)} violations in all)"
        reason = "Invalid" if code == 422 else "ServiceUnavailable"
        response["status"] = {"code": code, "reason": reason, "message": message}
    if additions:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(additions)).decode()
    if warnings and not violations:
        response["warnings"] = warning_header.bounded(warnings)
    return msgspec.json.encode(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    )
