"""Who asked for what, and what the door said."""

from typing import Literal

import msgspec

from stromboli.shared.messages.base import Message, register

EntryPoint = Literal["webhook", "rest", "kafka"]
"""How an object comes in."""


class Violation(Message, frozen=True, kw_only=True):
    """One thing that is wrong: where, what, and what would be right."""

    path: str
    reason: str
    expected: str = ""

    @property
    def message(self) -> str:
        """All of it in one line."""
        what = f"{self.path or 'document'}: {self.reason}"
        return f"{what}; {self.expected}" if self.expected else what


@register("stromboli.admission.object_reviewed.v1")
class ObjectReviewed(Message, frozen=True, kw_only=True):
    """One review (key: the object). Allowed exactly if there are no violations."""

    kind: str
    object: str
    operation: Literal["CREATE", "UPDATE", "DELETE"]
    user: str
    entry_point: EntryPoint
    allowed: bool
    violations: tuple[Violation, ...] = ()


@register("stromboli.admission.objects_submitted.v1")
class ObjectsSubmitted(Message, frozen=True, kw_only=True):
    """Objects to create or change, all or none, as somebody outside hands them in.

    The header ``authorization`` has ``Bearer`` and a token of the submissions' audience. ``ce_id``
    (with ``ce_source``) names the submission and makes it safe to repeat.
    """

    objects: tuple[msgspec.Raw, ...]


class SubmittedObject(Message, frozen=True, kw_only=True):
    """What became of an object: created, configured or unchanged."""

    kind: str
    object: str
    uid: str
    result: str


@register("stromboli.admission.submission_answered.v1")
class SubmissionAnswered(Message, frozen=True, kw_only=True):
    """What became of a submission (key: its ``ce_id``, cut to 255 characters).

    ``status`` as HTTP has it: 200 done, else nothing was, and ``detail`` and ``violations`` say
    why. A submission that comes twice is answered twice: the first answer counts.
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
    """What a request with an idempotency key was answered (key: that key), so that the same request
    is answered alike. ``request``: a digest of what was asked; ``body``: JSON."""

    request: str
    status: int
    body: str
