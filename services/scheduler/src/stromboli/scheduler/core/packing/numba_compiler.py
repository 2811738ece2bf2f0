"""Compilation of loops over GPUs, which columns cannot express.

Compiled code is kept on disk beside its source or in the user's cache. Where neither can be
written, as in an image with a read-only root, each process compiles for itself;
``NUMBA_CACHE_DIR`` names a place that can.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """``function`` over integers, floats and arrays, as machine code after its first call."""
    try:
        made = numba.njit(cache=True)(function)
    except RuntimeError:  # no place for a cache
        made = numba.njit(function)
    return cast(Function, made)
