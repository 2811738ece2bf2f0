"""Scores of a node by resources: least allocated and balanced allocation, as integers.

Each part is an integer from 0 to 100, truncated as in Kubernetes. Fractions are double precision,
computed element by element, so that one node alone and all nodes at once give the same bits.
"""

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
    requests = np.array([[shape.assumed_cpu], [shape.assumed_memory]], np.int64)
    has = allocatable[[requirements.CPU, requirements.MEMORY]]
    left = has - assumed_used
    left -= requests
    exists = has > 0
    has_room = left >= 0
    has_room &= exists
    left *= 100
    np.maximum(has, 1, out=has)
    left //= has
    left *= has_room
    score: Amounts = left[0]
    score += left[1]
    score //= np.maximum(np.add.reduce(exists, axis=0, dtype=np.int64), 1)
    return score


class Balance:
    """How evenly tasks use some resources of nodes: cpu, memory and perhaps GPUs.

    ``allocatable``: these resources x nodes, which do not change within a session.
    """

    def __init__(self, allocatable: Amounts) -> None:
        self._has = allocatable > 0
        self._least_one = np.maximum(allocatable, 1).astype(np.float64)

    def evenness(self, used: Amounts, rows: slice | npt.NDArray[np.intp]) -> Amounts:
        """The evenness of the nodes of these rows with this usage, 0 to 100."""
        return _evenness(used, self._has[:, rows], self._least_one[:, rows])


def improvement(before: Amounts, after: Amounts) -> Amounts:
    """Balanced allocation: how much a task improves the evenness of a node, 50 to 100."""
    score: Amounts = after - before
    score += 50
    score //= 2
    score += 50
    return score


def _evenness(used: Amounts, has: npt.NDArray[np.bool_], allocatable: Floats) -> Amounts:
    """100 times one minus the standard deviation of the used fractions, truncated.

    ``has``: where a node has the resource. ``allocatable``: at least 1. Results overwrite each
    other, since allocating an array of all nodes costs more than computing one.
    """
    fractions: Floats = used / allocatable
    np.minimum(fractions, 1.0, out=fractions)
    if len(fractions) == 2:
        deviation: Floats = fractions[0]
        deviation -= fractions[1]
        deviation /= 2
        np.abs(deviation, out=deviation)
        deviation *= has[0] & has[1]
    else:
        number = np.maximum(np.add.reduce(has, axis=0, dtype=np.int64), 1)
        fractions *= has
        mean = fractions[0] + fractions[1]
        mean += fractions[2]
        mean /= number
        fractions -= mean
        fractions *= fractions
        fractions *= has
        deviation = fractions[0]
        deviation += fractions[1]
        deviation += fractions[2]
        deviation /= number
        np.sqrt(deviation, out=deviation)
    np.subtract(1, deviation, out=deviation)
    deviation *= 100
    truncated: Amounts = deviation.astype(np.int64)
    return truncated
