"""Errors of external calls, translated once by the adapters.

::

    ExternalError
    ├── TransientError        retry, after retry_after_s
    │   ├── DisruptionBudgetError  a PodDisruptionBudget allows no eviction now
    │   ├── RateLimitedError  the caller exceeded its rate limit
    │   └── UnavailableError  no response
    └── PermanentError        the same call fails again
        ├── ConfigurationError   an address or credentials are missing or malformed
        ├── NotFoundError
        ├── ConflictError        a patch test failed, or the version or uid does not match
        │   └── AlreadyExistsError
        ├── ExpiredError         the version of the watch is no longer retained: list again
        ├── InvalidError         the API server or a webhook rejected the object
        ├── ForbiddenError
        ├── TooLargeError        above the limit of a record or request
        └── UnsupportedError     the server does not implement this call
"""


class ExternalError(Exception):
    """A call to the cluster or the log failed. ``what`` names the object and the verb."""

    retry_after_s: float = 0.0
    """Callers that retry wait at least this many seconds."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.what = what
        self.reason = reason


class TransientError(ExternalError):
    """A retry may succeed, after at least ``retry_after_s`` seconds."""

    def __init__(self, what: str, reason: str, retry_after_s: float = 0.0) -> None:
        super().__init__(what, reason)
        self.retry_after_s = retry_after_s


class RateLimitedError(TransientError):
    """The caller exceeded its rate limit; other callers are served."""


class DisruptionBudgetError(TransientError):
    """A PodDisruptionBudget allows no eviction of the pod now."""


class UnavailableError(TransientError):
    """The server does not respond."""


class PermanentError(ExternalError):
    """The call would fail again if it were repeated."""


class ConfigurationError(PermanentError):
    """An address or credentials are missing or malformed: the process prints the error and
    exits."""


class NotFoundError(PermanentError):
    """The object does not exist."""


class ConflictError(PermanentError):
    """A precondition (uid, version, patch test) failed: another client changed the object."""


class AlreadyExistsError(ConflictError):
    """The name is in use."""


class ExpiredError(PermanentError):
    """The requested version is older than the retained history."""


class InvalidError(PermanentError):
    """The object was rejected; ``reason`` gives the causes with paths."""


class ForbiddenError(PermanentError):
    """The account lacks a right; ``reason`` names it."""


class TooLargeError(PermanentError):
    """The record or request exceeds the limit."""


class UnsupportedError(PermanentError):
    """The server does not implement this call; ``what`` names it."""


class InvariantError(Exception):
    """An invariant across objects is violated, which is a bug that no single object causes. It is
    never isolated: the process ends, restarts and rebuilds its state from the log."""


class LogLostError(InvariantError):
    """A topic was deleted and created again, or lost its tail. State derived from it is void: the
    term ends, and the next term rebuilds the state."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")


class ReplacedError(Exception):
    """A later writer has opened the log, or a later consumer the group: readers drop the records of
    this one, and its commits are rejected. The term ends, and the replica becomes a standby."""


class UndecodableError(Exception):
    """A record of an unknown type, or with a value that does not match its type. Readers mark its
    key as *unknown*."""

    def __init__(self, topic: str, offset: int, key: str, reason: str) -> None:
        super().__init__(f"{topic}@{offset} key {key!r}: {reason}")
        self.topic = topic
        self.offset = offset
        self.key = key
        self.reason = reason
