"""Packing of unequal requests onto nodes: exact on small clusters."""

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.scheduler.core.placement import vector_packing
from stromboli.testkit.strategies import depth


def demand(request: Sequence[int], count: int, nodes: Sequence[bool]) -> vector_packing.Demand:
    return vector_packing.Demand(np.array(request, np.int64), count, np.array(nodes, np.bool_))


def one_resource(room: Sequence[int], tasks: Sequence[int]) -> list[dict[int, int]] | None:
    """Tasks of the same request are one demand, in ascending order of requests."""
    demands = [
        demand([request], count, [True] * len(room))
        for request, count in sorted(Counter(tasks).items())
    ]
    return vector_packing.pack(np.array([room], np.int64), demands)


def test_the_largest_tasks_take_the_nodes_on_which_they_leave_least_room() -> None:
    assert one_resource([4, 3], [2, 2, 3]) == [{0: 2}, {1: 1}]


def test_the_search_finds_what_largest_first_misses() -> None:
    """Largest first fills a node with 4 and 4, and no node is left for the last 3."""
    assert one_resource([10, 10], [3, 3, 3, 3, 4, 4]) == [{0: 2, 1: 2}, {0: 1, 1: 1}]


def test_what_does_not_fit_has_no_places() -> None:
    assert one_resource([3, 3], [2, 2, 2]) is None


def test_many_tasks_are_packed_without_a_search() -> None:
    """The recursion is as deep as nodes are filled: it is for small clusters alone."""
    room = [8] * 3000
    found = one_resource(room, [8] * 1500 + [3] * 3000)
    assert found is not None
    assert [sum(each.values()) for each in found] == [3000, 1500]
    assert one_resource(room, [5] * 3001 + [3]) is None


@pytest.mark.parametrize("nodes", [[True, False], [False, True]])
def test_tasks_are_packed_on_allowed_nodes(nodes: list[bool]) -> None:
    room = np.array([[4, 4], [8, 8]], np.int64)
    found = vector_packing.pack(room, [demand([1, 1], 2, nodes), demand([2, 4], 1, [True, True])])
    assert found is not None
    assert found[0] == {nodes.index(True): 2}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[np.ndarray, list[vector_packing.Demand]]:
    resources, nodes = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    amounts = st.lists(st.integers(0, 6), min_size=nodes, max_size=nodes)
    room = np.array([draw(amounts) for _ in range(resources)], np.int64)
    masks = st.lists(st.booleans(), min_size=nodes, max_size=nodes)
    requests = st.lists(st.integers(0, 4), min_size=resources, max_size=resources)
    demands = draw(
        st.lists(st.builds(demand, requests, st.integers(1, 3), masks), min_size=1, max_size=3)
    )
    return room, demands


def fits(room: np.ndarray, demands: Sequence[vector_packing.Demand], rows: Sequence[int]) -> bool:
    left = room.copy()
    tasks = [each for each in demands for _ in range(each.count)]
    for each, row in zip(tasks, rows, strict=True):
        left[:, row] -= each.request
        if not each.mask[row]:
            return False
    return bool((left >= 0).all())


@depth.examples(150)
@given(clusters())
def test_places_are_found_exactly_if_there_are_any(
    cluster: tuple[np.ndarray, list[vector_packing.Demand]],
) -> None:
    """Compared with all ways to place up to nine tasks on three nodes."""
    room, demands = cluster
    found = vector_packing.pack(room, demands)
    count = sum(each.count for each in demands)
    ways = itertools.product(range(room.shape[1]), repeat=count)
    if found is None:
        assert not any(fits(room, demands, rows) for rows in ways)
    else:
        rows = [row for each in found for row, times in each.items() for _ in range(times)]
        assert fits(room, demands, rows)
