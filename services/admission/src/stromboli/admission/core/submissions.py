"""Decodes submissions from Kafka.

Any client of the broker may write to the topic, so only the token is trusted, and no answer, log
line or trace contains anything of a record except the submission's id and source.
"""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from stromboli.admission.core import token_claims
from stromboli.shared import decoding, envelope, errors
from stromboli.shared.messages.admission import ObjectsSubmitted

MAX_ID_LENGTH = 255
"""Maximum characters of a submission's id and source, as for an idempotency key."""
MAX_BYTES = 3 * 1024 * 1024
"""The same limit as a REST request's."""
MAX_TOKEN_LIFETIME_S = 3600 + 60
"""Readers of the topic see the tokens in it, and the topic is kept for days, so tokens with a
longer lifetime are rejected. kubectl issues them for an hour, and clocks differ.
"""
MAX_CLOCK_SKEW = timedelta(seconds=60)
BEARER = "bearer "


class SubmissionId(msgspec.Struct, frozen=True):
    """Identifies a submission: its id and its source, empty where the record has none."""

    id: str
    source: str


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """Objects to create or change with the rights of the token's user."""

    name: SubmissionId
    at: datetime
    token: str
    documents: tuple[dict[str, Any], ...]

    def __repr__(self) -> str:
        return f"Submission({self.name.source}/{self.name.id}, {len(self.documents)} objects)"


class RejectedSubmission(msgspec.Struct, frozen=True):
    """Why a record is not a valid submission; ``status`` is an HTTP status."""

    name: SubmissionId
    status: int
    detail: str


def read(
    record: envelope.Record, now: datetime, max_age: timedelta
) -> Submission | RejectedSubmission:
    """The submission in a record. Never raises."""
    name = _id_of(record)
    try:
        at = record.time
    except errors.UndecodableError:
        return RejectedSubmission(
            name, 400, "ce_time: must be the submission time, such as 2026-01-31T12:00:00Z"
        )
    if len(record.value or b"") > MAX_BYTES:
        size = len(record.value or b"")
        return RejectedSubmission(
            name, 413, f"{size} bytes; at most {MAX_BYTES}: split the submission"
        )
    if not name.id or not name.source:
        return RejectedSubmission(
            name, 400, f"ce_id, ce_source: must have 1 to {MAX_ID_LENGTH} characters each"
        )
    if at > now + MAX_CLOCK_SKEW:
        return RejectedSubmission(name, 400, "ce_time: is in the future")
    if at < now - max_age:
        seconds = round((now - at).total_seconds())
        limit = round(max_age.total_seconds())
        return RejectedSubmission(
            name, 408, f"submitted {seconds} s ago; at most {limit} s: send it again"
        )
    token = token_of(record)
    if not token:
        return RejectedSubmission(
            name, 401, "the record has no authorization header with a bearer token"
        )
    lives_s = token_claims.lifetime_s(token)
    if lives_s is not None and lives_s > MAX_TOKEN_LIFETIME_S:
        return RejectedSubmission(
            name,
            401,
            f"the token is valid for {lives_s:.0f} s; at most {MAX_TOKEN_LIFETIME_S} s: request a "
            "token with a shorter lifetime",
        )
    try:
        message = envelope.decode(record)
    except errors.UndecodableError as error:
        return RejectedSubmission(name, 400, error.reason)
    if not isinstance(message, ObjectsSubmitted):
        return RejectedSubmission(name, 400, "the record is not a submission")
    return _with_documents(name, at, token, message)


def _with_documents(
    name: SubmissionId, at: datetime, token: str, message: ObjectsSubmitted
) -> Submission | RejectedSubmission:
    documents = []
    for index, raw in enumerate(message.objects):
        try:
            documents.append(decoding.document(raw))
        except msgspec.DecodeError as error:
            return RejectedSubmission(name, 400, f"objects[{index}]: {error}")
    if not documents:
        return RejectedSubmission(name, 400, "objects: the list is empty")
    return Submission(name=name, at=at, token=token, documents=tuple(documents))


def token_of(record: envelope.Record) -> str:
    """The token of a record, or empty. The case of Kafka header names is ignored."""
    for name, value in record.headers.items():
        if name.lower() == "authorization" and value.lower().startswith(BEARER):
            return value[len(BEARER) :].strip()
    return ""


def _id_of(record: envelope.Record) -> SubmissionId:
    """The id; empty where it is too long, because a truncated id identifies nothing."""
    id_parts = (record.id, record.headers.get("ce_source", ""))
    return SubmissionId(*(text if len(text) <= MAX_ID_LENGTH else "" for text in id_parts))
