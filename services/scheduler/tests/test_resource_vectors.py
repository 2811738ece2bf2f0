"""Sums of amounts are exact for any number of amounts and beyond 64 bits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stromboli.scheduler.core.model import resource_vectors
from stromboli.shared.formats import units

SOME = st.integers(-units.MOST, units.MOST) | st.sampled_from([units.MOST, 2**40, 0])


@given(st.lists(st.lists(SOME, min_size=3, max_size=3), min_size=2, max_size=2))
def test_a_sum_over_nodes_is_exact(rows: list[list[int]]) -> None:
    found = resource_vectors.total(np.array(rows, np.int64)).tolist()
    assert found == [sum(row) for row in rows]


def test_the_sum_over_nodes_may_exceed_64_bits() -> None:
    """Three amounts at the limit of a quantity: wrapped around, their sum would be negative."""
    said = units.amounts({"memory": "8Ei"})["memory"]
    found = resource_vectors.total(np.array([[said] * 3, [1, 2, 3]], np.int64)).tolist()
    assert found == [3 * said, 6]


def test_the_sum_over_no_nodes_is_zero() -> None:
    assert resource_vectors.total(np.zeros((2, 0), np.int64)).tolist() == [0, 0]


@given(st.lists(st.lists(SOME, min_size=2, max_size=2), max_size=9))
def test_a_sum_of_requests_is_exact(rows: list[list[int]]) -> None:
    vectors = [np.array(row, np.int64) for row in rows]
    expected = [sum(row[column] for row in rows) for column in (0, 1)]
    assert resource_vectors.sum_of(vectors, 2).tolist() == expected
    assert (
        resource_vectors.sum_of(
            [resource_vectors.multiplied(each, 1) for each in vectors], 2
        ).tolist()
        == expected
    )


@given(st.lists(SOME, min_size=1, max_size=3), st.integers(0, 2**20))
def test_the_request_of_many_equal_tasks_is_exact_and_clipped_for_comparison_with_nodes(
    row: list[int], count: int
) -> None:
    product = resource_vectors.multiplied(np.array(row, np.int64), count)
    assert product.tolist() == [count * each for each in row]
    assert resource_vectors.bounded(product).dtype == np.int64
    assert resource_vectors.bounded(product).tolist() == [
        max(-units.MOST, min(units.MOST, count * each)) for each in row
    ]


def test_no_limit_is_more_than_a_million_times_the_largest_amount() -> None:
    """The capacity of a large cluster must neither count as unlimited nor be limited by
    ``INFINITE``.
    """
    assert 10**6 * units.MOST < resource_vectors.INFINITE
