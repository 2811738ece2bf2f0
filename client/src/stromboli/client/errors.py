"""What goes wrong between a program and a server. Every error names the object and the reason.

::

    ClientError
    ├── InvalidArgumentError    an argument has the wrong form; nothing was sent
    ├── UnnamedError            a name in the call is empty; nothing was sent
    ├── UnsafeTokenError        a token would travel in the clear; nothing was sent
    ├── UnreadableFileError     the file of a token or an authority cannot be read
    ├── UnreachableError        nobody answers at the server's address
    ├── UnreadableError         whoever answers is not Stromboli, or is one we do not understand
    ├── AnsweredError           the server said no: ``status``, ``reason``
    │   ├── UnknownUserError    401: the server does not know who we are: no token, or none of its
    │   ├── ForbiddenError      403: ``violations`` has every right that is missing
    │   ├── NotFoundError       404: there is no such object, or no such namespace
    │   ├── ConflictError       409: the name is taken, or somebody else was faster
    │   ├── ExpiredError        410: a continue token is too old; list again
    │   ├── RefusedError        422: the objects are wrong: ``violations``, each with its path
    │   └── UnavailableError    503: try again in a moment
    ├── GoneError               what was awaited was deleted, or another took its name
    └── TimedOutError           what was awaited has not come in time
"""

from stromboli.shared.messages.admission import Violation


class ClientError(Exception):
    """``what``: the object asked about, such as ``job default/train``."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.what = what
        self.reason = reason


class InvalidArgumentError(ClientError, ValueError):
    """An argument has the wrong form. Nothing was sent."""


class EmptyNameError(ClientError):
    """A name is empty."""


class UnsafeTokenError(ClientError):
    """A token goes over HTTPS or to this machine."""


class UnreadableFileError(ClientError):
    """A file with a token or an authority cannot be read."""


class UnreachableError(ClientError):
    """Nobody answers, or not in time. A write may have happened all the same."""


class UnreadableError(ClientError):
    """The answer is none of Stromboli's."""


class ResponseError(ClientError):
    """The server said no; nothing was written. ``is_creation``: the object asked about was to be
    made, so what was not found is its namespace."""

    def __init__(
        self,
        what: str,
        reason: str,
        status: int,
        violations: tuple[Violation, ...] = (),
        *,
        is_creation: bool = False,
    ) -> None:
        super().__init__(what, reason)
        self.status = status
        self.is_creation = is_creation
        self.violations = violations


class UnauthenticatedError(ResponseError):
    """The server does not know who we are; ``reason`` says what is wrong with the token."""


class ForbiddenError(ResponseError):
    """The user lacks rights; ``violations`` has each, and the rule that would give it."""


class NotFoundError(ResponseError):
    """There is no such object; for a creation, no such namespace."""


class ConflictError(ResponseError):
    """The name is taken, or the object changed meanwhile."""


class ExpiredError(ResponseError):
    """The continue token is too old."""


class RejectedError(ResponseError):
    """The server found the objects wrong; ``violations`` has every mistake."""


class UnavailableError(ResponseError):
    """The server cannot do it just now."""


class GoneError(ClientError):
    """The object was deleted while it was awaited."""


class TimedOutError(ClientError):
    """It has not come in time."""


BY_STATUS: dict[int, type[ResponseError]] = {
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    422: RejectedError,
    429: UnavailableError,
    503: UnavailableError,
}
"""HTTP status -> error; every other status is an AnsweredError."""
