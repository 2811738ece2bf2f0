"""Who asked for what, and what the door said."""

from typing import Literal

from stromboli.shared.messages.base import Message, register

Way = Literal["webhook", "rest", "kafka"]
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


@register("stromboli.admission.reviewed.v1")
class Reviewed(Message, frozen=True, kw_only=True):
    """One review (key: the object). Allowed exactly if there are no violations."""

    kind: str
    object: str
    operation: Literal["CREATE", "UPDATE", "DELETE"]
    user: str
    way: Way
    allowed: bool
    violations: tuple[Violation, ...] = ()


@register("stromboli.admission.answered.v1")
class Answered(Message, frozen=True, kw_only=True):
    """What a request with an idempotency key was answered (key: that key), so that the same request
    is answered alike. ``request``: a digest of what was asked; ``body``: JSON."""

    request: str
    status: int
    body: str
