"""Isolates a bug that one object triggers: it is logged and counted, and all other objects proceed.

External errors, cancellation and broken invariants across objects pass through: the first two are
handled elsewhere, and the last one ends the process.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog

from stromboli.controller import controller_metrics
from stromboli.shared import errors

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class StoppingError(Exception):
    """The process ends, or the connection was lost: the decision is delivered again."""


_PASSED = (errors.ExternalError, errors.InvariantError, StoppingError)


async def run(
    call: Callable[[], Awaitable[T]], instead: Callable[[Exception], T], kind: str, **about: Any
) -> T:
    """The result of the call, or ``instead`` if it raised a bug."""
    try:
        return await call()
    except _PASSED:
        raise
    except Exception as error:  # this is what the function is for
        if isinstance(error, ExceptionGroup) and error.subgroup(_PASSED) is not None:
            raise
        report(error, kind, **about)
        return instead(error)


def report(error: Exception, kind: str, **about: Any) -> None:
    """Log and count a failure of one object or record."""
    controller_metrics.isolated(kind)
    _log.error("isolated", kind=kind, **about, exc_info=error)
