"""Which pods arrive, and in which order: the published protocol's step 2, one sequence per seed."""

from typing import Protocol

import numpy as np

from stromboli.scheduler.core.packing import trace

ARRIVED_PERCENT = 130
"""GPU that arrives, of the capacity: enough for the cluster to be full at the end."""


class RandomSource(Protocol):
    """A seeded source of chance, as NumPy's ``Generator``."""

    def permutation(self, x: trace.Integers, /) -> trace.Integers: ...

    def integers(self, low: int, /) -> np.int64: ...


def arrival_sequence(pods: trace.Pods, total_milli: int, chance: RandomSource) -> trace.Integers:
    """The shapes of the pods in the order of their arrival.

    The list is shuffled. If it asks for less GPU than ``ARRIVED_PERCENT`` of ``total_milli``, pods
    drawn from it with replacement follow, up to the first that would go over. If it asks for more,
    pods drawn from it are left out until it does not.
    """
    takes = pods.gpu_milli
    limit = total_milli * ARRIVED_PERCENT // 100
    order: list[int] = chance.permutation(pods.shape_of).tolist()
    asked = int(takes[pods.shape_of].sum())
    while asked > limit:
        asked -= int(takes[order.pop(int(chance.integers(len(order))))])
    if len(order) == len(pods.shape_of):
        while True:
            drawn = int(pods.shape_of[chance.integers(len(pods.shape_of))])
            asked += int(takes[drawn])
            if asked > limit:
                break
            order.append(drawn)
    return np.array(order, np.int64)
