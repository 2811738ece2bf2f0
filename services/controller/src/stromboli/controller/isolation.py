"""Isolates internal errors that one object triggers: they are logged and counted, and other objects
proceed.

External errors, cancellation and broken invariants across objects are not caught: callers handle
the first two, and a broken invariant ends the process.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog

from stromboli.controller import controller_metrics
from stromboli.shared import errors

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class StoppingError(Exception):
    """Raised when the process ends or the connection was lost: the decision will be delivered
    again."""


_PASSED = (errors.ExternalError, errors.InvariantError, StoppingError)


async def run(
    call: Callable[[], Awaitable[T]], instead: Callable[[Exception], T], kind: str, **about: Any
) -> T:
    """The result of the call; if it raised an internal error, report that and return
    ``instead(error)``."""
    try:
        return await call()
    except _PASSED:
        raise
    except Exception as error:  # isolates any internal error
        if isinstance(error, ExceptionGroup) and error.subgroup(_PASSED) is not None:
            raise
        report(error, kind, **about)
        return instead(error)


def report(error: Exception, kind: str, **about: Any) -> None:
    """Log and count a failure of one object or record."""
    controller_metrics.isolated(kind)
    _log.error("internal error isolated", kind=kind, **about, exc_info=error)
