"""Trouble with the outside, translated once by the adapters.

::

    OutsideError
    ├── TransientError        try again, after retry_after_s
    │   ├── RateLimitedError  the caller reached a limit of its own
    │   └── UnavailableError  nobody answers
    └── PermanentError        the same call will fail again
        ├── NotFoundError
        ├── ConflictError        a test in a patch failed, or the version or uid is another's
        │   └── AlreadyExistsError
        ├── ExpiredError         the watch's version is gone: list again
        ├── InvalidError         the API server or a webhook refused the object
        ├── ForbiddenError
        ├── TooLargeError        over the limit of a record or request
        └── UnsupportedError     the embedded cluster does not do this verb (501)
"""


class ExternalError(Exception):
    """A call to the cluster or the log failed. ``what`` names the object and the verb."""

    retry_after_s: float = 0.0
    """Whoever calls again for ever does not do so sooner."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.what = what
        self.reason = reason


class TransientError(ExternalError):
    """Worth repeating, not before ``retry_after_s`` seconds."""

    def __init__(self, what: str, reason: str, retry_after_s: float = 0.0) -> None:
        super().__init__(what, reason)
        self.retry_after_s = retry_after_s


class RateLimitedError(TransientError):
    """The caller has reached a limit of its own; others are served."""


class UnavailableError(TransientError):
    """Nobody answers at all."""


class PermanentError(ExternalError):
    """Repeating the same call is useless."""


class NotFoundError(PermanentError):
    """There is no such object."""


class ConflictError(PermanentError):
    """Somebody else was faster: a precondition (uid, version, patch test) does not hold."""


class AlreadyExistsError(ConflictError):
    """The name is taken."""


class ExpiredError(PermanentError):
    """The asked version is older than what is kept."""


class InvalidError(PermanentError):
    """The object is refused; ``reason`` says why, with paths."""


class ForbiddenError(PermanentError):
    """Our account may not do this; ``reason`` names the missing right."""


class TooLargeError(PermanentError):
    """The record or request is over the limit."""


class UnsupportedError(PermanentError):
    """The embedded cluster does not do this; the verb stands in ``what``."""


class InvariantError(Exception):
    """A rule across objects does not hold: a bug that no object can be blamed for. It is never
    isolated: the process ends with it, starts again and rebuilds its state from the log."""


class LogLostError(InvariantError):
    """A topic was deleted and created again, or lost its tail. What was derived from it is void:
    the term ends, and the next one derives it anew."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")


class ReplacedError(Exception):
    """A later writer has opened the log, or a later consumer the group: readers drop the records of
    this one, and its commits are refused. The term ends, and the replica stands by."""


class UndecodableError(Exception):
    """A record whose type is unknown or whose value is not of its type: its key is *unknown*."""

    def __init__(self, topic: str, offset: int, key: str, reason: str) -> None:
        super().__init__(f"{topic}@{offset} key {key!r}: {reason}")
        self.topic = topic
        self.offset = offset
        self.key = key
        self.reason = reason
