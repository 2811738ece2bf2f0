"""Requests to admission and their answers."""

from typing import Literal

import msgspec

from stromboli.shared.messages.base import Message, register

EntryPoint = Literal["webhook", "rest", "kafka"]
"""The entry point by which an object was submitted."""


class Violation(Message, frozen=True, kw_only=True):
    """One rule that an object violates: the path, the reason, and what is expected."""

    path: str
    reason: str
    expected: str = ""

    @property
    def message(self) -> str:
        """The violation in one line."""
        what = f"{self.path or 'document'}: {self.reason}"
        return f"{what}; {self.expected}" if self.expected else what


@register("stromboli.admission.object_reviewed.v1")
class ObjectReviewed(Message, frozen=True, kw_only=True):
    """The result of the review of an object (key: the object). The request is allowed if and
    only if there are no violations."""

    kind: str
    object: str
    operation: Literal["CREATE", "UPDATE", "DELETE"]
    user: str
    entry_point: EntryPoint
    allowed: bool
    violations: tuple[Violation, ...] = ()


@register("stromboli.admission.job_requested.v1")
class JobRequested(Message, frozen=True, kw_only=True):
    """A user's request about an existing job was admitted (key: the job). It may fail afterwards:
    what happened to the job is on ``batch.events``.

    ``action``: ``DeleteJob``, ``ChangeJob``, or the action of a command. ``subject`` identifies
    the request, which REST and a webhook may both record: the name of the command, or the job's
    resourceVersion before the change. ``detail``: the changed fields, without values that a user
    may keep secret.
    """

    job: str
    uid: str
    user: str
    action: str
    entry_point: EntryPoint
    subject: str = ""
    detail: str = ""


@register("stromboli.admission.objects_submitted.v1")
class ObjectsSubmitted(Message, frozen=True, kw_only=True):
    """Objects that an external client submits, to create or change all of them or none.

    The header ``authorization`` has ``Bearer`` and a token of the submissions' audience. ``ce_id``
    (with ``ce_source``) names the submission and makes it safe to repeat.
    """

    objects: tuple[msgspec.Raw, ...]


class SubmittedObject(Message, frozen=True, kw_only=True):
    """The result for one object: created, configured or unchanged. ``warnings``: the object's
    fields that have no effect, at most 10."""

    kind: str
    object: str
    uid: str
    result: str
    warnings: tuple[str, ...] = ()


@register("stromboli.admission.submission_answered.v1")
class SubmissionAnswered(Message, frozen=True, kw_only=True):
    """The answer to a submission (key: its ``ce_id``, truncated to 255 characters).

    ``status`` is an HTTP status: with 200 all objects were applied, otherwise none was, and
    ``detail`` and ``violations`` give the reason. A repeated submission is answered again; the
    first answer is authoritative.
    """

    submission: str
    source: str
    offset: int
    status: int
    user: str = ""
    detail: str = ""
    objects: tuple[SubmittedObject, ...] = ()
    violations: tuple[Violation, ...] = ()


@register("stromboli.admission.request_answered.v1")
class RequestAnswered(Message, frozen=True, kw_only=True):
    """The answer to a request with an idempotency key (key: that key). A repeated request gets the
    same answer. ``request``: a digest of the request; ``body``: JSON; ``warnings``: texts of the
    header ``Warning``."""

    request: str
    status: int
    body: str
    warnings: tuple[str, ...] = ()
