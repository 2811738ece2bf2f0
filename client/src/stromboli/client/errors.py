"""The errors of the client. Every error names the object and the reason.

::

    ClientError
    ├── InvalidArgumentError      an argument or URL has the wrong form; nothing was sent
    ├── EmptyNameError            a name in the call is empty; nothing was sent
    ├── UnsafeTokenError          a token would be sent unencrypted; nothing was sent
    ├── UnreadableFileError       a file with a token or a CA certificate cannot be read
    ├── SettingError              the user's configuration or context is not valid
    ├── UnreachableError          no response from the server's address
    ├── UnreadableError           the response is not from Stromboli, or of an unknown version
    ├── ResponseError             an error response: ``status``, ``reason``
    │   ├── UnauthenticatedError  401: no token, or an unknown one
    │   ├── ForbiddenError        403: ``violations`` lists the missing permissions
    │   ├── NotFoundError         404: the object or its namespace does not exist
    │   ├── ConflictError         409: the name exists, or the object was changed concurrently
    │   ├── ExpiredError          410: the continue token is too old; list again
    │   ├── RejectedError         422: ``violations`` lists the errors, each with its path
    │   └── UnavailableError      503: temporarily unavailable
    ├── GoneError                 the object of a wait was deleted or replaced
    ├── TimedOutError             a wait reached its timeout
    ├── NoContainerError          no container runs for a session, or one must be chosen
    ├── SessionError              a session in a pod was refused, or it broke
    └── WorkersLostError          an executor's job ended, or a call's worker was lost too often
"""

import concurrent.futures

from stromboli.shared.messages.admission import Violation


class ClientError(Exception):
    """``what``: the object of the call, such as ``job default/train``. ``next_step``: what to do
    about it; empty if the reason says it."""

    def __init__(self, what: str, reason: str, next_step: str = "") -> None:
        super().__init__(f"{what}: {reason}" + (f"; next: {next_step}" if next_step else ""))
        self.what = what
        self.reason = reason
        self.next_step = next_step


class InvalidArgumentError(ClientError, ValueError):
    """An argument has the wrong form. Nothing was sent."""


class EmptyNameError(ClientError):
    """A name is empty. Nothing was sent."""


class UnsafeTokenError(ClientError):
    """The token would be sent unencrypted to another machine."""


class UnreadableFileError(ClientError):
    """A file with a token or a CA certificate cannot be read."""


class SettingError(ClientError):
    """A file that configures the server, or the selected context, is not valid."""


class UnreachableError(ClientError):
    """No response, or not in time. A write may still have been executed."""


class UnreadableError(ClientError):
    """The response is not from a Stromboli server."""


class ResponseError(ClientError):
    """An error response; nothing was written. ``is_creation``: the call creates the object, so a
    404 is about its namespace.
    """

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
    """Authentication failed; ``reason`` names the error of the token."""


class ForbiddenError(ResponseError):
    """The user lacks rights; ``violations`` has each, and the rule that would grant it."""


class NotFoundError(ResponseError):
    """The object does not exist; for a creation, the namespace."""


class ConflictError(ResponseError):
    """The name exists already, or the object changed since it was read."""


class ExpiredError(ResponseError):
    """The continue token is too old."""


class RejectedError(ResponseError):
    """The server rejected the objects; ``violations`` has every violation."""


class UnavailableError(ResponseError):
    """The server is temporarily unavailable."""


class GoneError(ClientError):
    """The object was deleted during the wait."""


class TimedOutError(ClientError):
    """The wait reached its timeout."""


class NoContainerError(ClientError):
    """No container of the job runs, so no session can be opened; or a pod has several containers
    and one must be chosen."""


class SessionError(ClientError):
    """A session in a pod was refused, or its connection broke."""


class WorkersLostError(ClientError, concurrent.futures.BrokenExecutor):
    """An executor's job ended or cannot be reached, or a call's worker was lost too often."""


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
"""HTTP status -> error; every other status is a ResponseError."""
