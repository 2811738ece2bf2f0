"""How well a shape sits on a node: spec/plugins 8, least allocated plus balanced, as integers.

Each part is an integer of 0 to 100, truncated as Kubernetes does. Fractions are double precision,
element by element, so that one node alone and all nodes at once give the same bits, in any order.
``of_nodes`` answers for many rows, ``of_node`` for one at a fortieth of its price.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core import columns, shapes

Floats: TypeAlias = npt.NDArray[np.float64]

HIGHEST = 200
"""Two parts of at most 100."""


def balanced_columns(shape: shapes.Shape, resources: shapes.Resources) -> tuple[int, ...]:
    """The resources whose use should stay even: cpu, memory, and GPUs when asked for."""
    gpu = resources.known(shapes.GPU)
    if gpu is not None and shape.amounts.get(gpu):
        return (shapes.CPU, shapes.MEMORY, gpu)
    return (shapes.CPU, shapes.MEMORY)


def of_nodes(
    shape: shapes.Shape,
    balanced: Sequence[int],
    allocatable: columns.Amounts,
    idle: columns.Amounts,
    assumed_used: columns.Amounts,
) -> columns.Amounts:
    """Scores of all given columns (``resources x nodes``), with the shape placed on each."""
    score = least(shape, allocatable, assumed_used)
    if shape.is_best_effort:
        return score
    return score + even(shape, balanced, allocatable, allocatable - idle)


def least(
    shape: shapes.Shape, allocatable: columns.Amounts, assumed_used: columns.Amounts
) -> columns.Amounts:
    """How much of cpu and memory stays free with the shape placed: 0 to 100."""
    requests = (shape.assumed_cpu, shape.assumed_memory)
    total = np.zeros(allocatable.shape[1], np.int64)
    parts = np.zeros(allocatable.shape[1], np.int64)
    for column, request in zip((shapes.CPU, shapes.MEMORY), requests, strict=True):
        has = allocatable[column]
        left = has - assumed_used[column] - request
        total += np.where((has > 0) & (left >= 0), left * 100 // np.maximum(has, 1), 0)
        parts += has > 0
    score: columns.Amounts = total // np.maximum(parts, 1)
    return score


def even(
    shape: shapes.Shape,
    balanced: Sequence[int],
    allocatable: columns.Amounts,
    used: columns.Amounts,
) -> columns.Amounts:
    """How evenly the balanced resources are used with the shape, against without: 0 to 100."""
    rows = list(balanced)
    asked = np.array([[shape.amounts[column]] for column in rows], np.int64)
    after = _evenness(used[rows] + asked, allocatable[rows])
    before = _evenness(used[rows], allocatable[rows])
    score: columns.Amounts = 50 + (50 + after - before) // 2
    return score


def of_node(
    shape: shapes.Shape,
    balanced: Sequence[int],
    allocatable: Sequence[int],
    idle: Sequence[int],
    assumed_used: Sequence[int],
) -> int:
    """The score of one node, bit for bit as ``of_nodes`` has it."""
    total = parts = 0
    requests = (shape.assumed_cpu, shape.assumed_memory)
    for column, request in zip((shapes.CPU, shapes.MEMORY), requests, strict=True):
        has = allocatable[column]
        if has > 0:
            parts += 1
            total += max(has - assumed_used[column] - request, 0) * 100 // has
    score = total // max(parts, 1)
    if shape.is_best_effort:
        return score
    room = [allocatable[column] for column in balanced]
    used = [allocatable[column] - idle[column] for column in balanced]
    then = [used[at] + shape.amounts[column] for at, column in enumerate(balanced)]
    return score + 50 + (50 + _evenness_of(then, room) - _evenness_of(used, room)) // 2


def _evenness(used: columns.Amounts, allocatable: columns.Amounts) -> columns.Amounts:
    """100 times one minus the standard deviation of the used fractions, truncated."""
    has = allocatable > 0
    fractions: Floats = np.minimum(used / np.maximum(allocatable, 1), 1.0)
    if len(fractions) == 2:
        deviation: Floats = np.abs((fractions[0] - fractions[1]) / 2)
        deviation[~(has[0] & has[1])] = 0.0
    else:
        number = np.maximum(has.sum(axis=0), 1)
        fractions = np.where(has, fractions, 0.0)
        mean = (fractions[0] + fractions[1] + fractions[2]) / number
        squares = np.where(has, (fractions - mean) * (fractions - mean), 0.0)
        deviation = np.sqrt((squares[0] + squares[1] + squares[2]) / number)
    truncated: columns.Amounts = ((1 - deviation) * 100).astype(np.int64)
    return truncated


def _evenness_of(used: Sequence[int], allocatable: Sequence[int]) -> int:
    """As ``_evenness``, operation by operation: ``sum`` would add otherwise on newer Pythons."""
    fractions = [
        min(float(amount) / float(has), 1.0) if has > 0 else 0.0
        for amount, has in zip(used, allocatable, strict=True)
    ]
    if len(fractions) == 2:
        is_even = 0 in allocatable
        return 100 if is_even else int((1 - abs((fractions[0] - fractions[1]) / 2)) * 100)
    number = max(sum(has > 0 for has in allocatable), 1)
    mean = (fractions[0] + fractions[1] + fractions[2]) / number
    squares = [
        (fraction - mean) * (fraction - mean) if has > 0 else 0.0
        for fraction, has in zip(fractions, allocatable, strict=True)
    ]
    return int((1 - math.sqrt((squares[0] + squares[1] + squares[2]) / number)) * 100)
