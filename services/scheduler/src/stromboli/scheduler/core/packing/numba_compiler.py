"""Compilation of loops over GPUs, which array operations cannot express.

Compiled code is cached beside its source or in the user's cache. If neither is writable, as in an
image with a read-only root, each process compiles for itself; ``NUMBA_CACHE_DIR`` names another
directory.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Return ``function`` over integers, floats and arrays, compiled to machine code at its first
    call."""
    try:
        dispatcher = numba.njit(cache=True)(function)
    except RuntimeError:  # no writable cache directory
        dispatcher = numba.njit(function)
    return cast(Function, dispatcher)
