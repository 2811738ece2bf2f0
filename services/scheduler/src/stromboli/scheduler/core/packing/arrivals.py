"""Pod arrivals: step 2 of the published protocol, one sequence per seed."""

from typing import Protocol

import numpy as np

from stromboli.scheduler.core.packing import trace

ARRIVED_PERCENT = 130
"""GPU demand that arrives, in percent of the capacity: enough to fill the cluster."""


class RandomSource(Protocol):
    """A seeded random generator with the interface of NumPy's ``Generator``."""

    def permutation(self, x: trace.Integers, /) -> trace.Integers: ...

    def integers(self, low: int, /) -> np.int64: ...


def arrival_sequence(pods: trace.Pods, total_milli: int, chance: RandomSource) -> trace.Integers:
    """Return the shapes of the pods in the order of arrival.

    The list is shuffled. If it requests less GPU than ``ARRIVED_PERCENT`` of ``total_milli``, pods
    drawn from it with replacement follow, up to the first one that would exceed it. If it requests
    more, random pods are left out until it does not.
    """
    takes = pods.gpu_milli
    limit = total_milli * ARRIVED_PERCENT // 100
    order: list[int] = chance.permutation(pods.shape_of).tolist()
    requested = int(takes[pods.shape_of].sum())
    while requested > limit:
        requested -= int(takes[order.pop(int(chance.integers(len(order))))])
    if len(order) == len(pods.shape_of):
        while True:
            drawn = int(pods.shape_of[chance.integers(len(pods.shape_of))])
            requested += int(takes[drawn])
            if requested > limit:
                break
            order.append(drawn)
    return np.array(order, np.int64)
