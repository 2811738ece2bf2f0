"""Scores of a node by resources: least allocated and balanced allocation, as integers.

Each part is an integer from 0 to 100, truncated as in Kubernetes. Fractions are double precision,
computed element by element, so that one node alone and all nodes at once give the same bits.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.model import requirements, resource_columns

Amounts: TypeAlias = npt.NDArray[np.int64]
"""``resources x nodes``."""
Floats: TypeAlias = npt.NDArray[np.float64]


def balanced_columns(
    shape: requirements.PodRequirements, resources: resource_columns.Resources
) -> tuple[int, ...]:
    """The resources whose usage should be balanced: cpu, memory, and GPUs if requested."""
    gpu = resources.known(requirements.GPU)
    if gpu is not None and shape.request.get(requirements.GPU):
        return (requirements.CPU, requirements.MEMORY, gpu)
    return (requirements.CPU, requirements.MEMORY)


def least(
    shape: requirements.PodRequirements, allocatable: Amounts, assumed_used: Amounts
) -> Amounts:
    """Least allocated: the fraction of cpu and memory that stays free with the task placed, 0 to
    100."""
    requests = (shape.assumed_cpu, shape.assumed_memory)
    total = np.zeros(allocatable.shape[1], np.int64)
    parts = np.zeros(allocatable.shape[1], np.int64)
    for column, request in zip((requirements.CPU, requirements.MEMORY), requests, strict=True):
        has = allocatable[column]
        left = has - assumed_used[column] - request
        total += np.where((has > 0) & (left >= 0), left * 100 // np.maximum(has, 1), 0)
        parts += has > 0
    score: Amounts = total // np.maximum(parts, 1)
    return score


def even(
    shape: requirements.PodRequirements,
    balanced: Sequence[int],
    allocatable: Amounts,
    used: Amounts,
) -> Amounts:
    """Balanced allocation: how much the task improves the balance of resource usage, 0 to 100."""
    rows = list(balanced)
    names = ("cpu", "memory", requirements.GPU)[: len(rows)]
    asked = np.array([[shape.request.get(name, 0)] for name in names], np.int64)
    after = _evenness(used[rows] + asked, allocatable[rows])
    before = _evenness(used[rows], allocatable[rows])
    score: Amounts = 50 + (50 + after - before) // 2
    return score


def _evenness(used: Amounts, allocatable: Amounts) -> Amounts:
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
    truncated: Amounts = ((1 - deviation) * 100).astype(np.int64)
    return truncated
