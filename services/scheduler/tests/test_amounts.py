"""Sums of amounts: exact as far as 64 bits go, and as good as no limit beyond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stromboli.scheduler.core.framework import amounts
from stromboli.shared import units

SOME = st.integers(-units.MOST, units.MOST) | st.sampled_from([units.MOST, 2**40, 0])


@given(st.lists(st.lists(SOME, min_size=3, max_size=3), min_size=2, max_size=2))
def test_a_sum_over_nodes_is_exact_or_as_good_as_no_limit(rows: list[list[int]]) -> None:
    found = amounts.total(np.array(rows, np.int64)).tolist()
    for row, total in zip(rows, found, strict=True):
        assert total == max(-amounts.INFINITE, min(amounts.INFINITE, sum(row)))


def test_a_cluster_of_nodes_with_no_limit_has_none() -> None:
    """Three amounts as large as a quantity can be: wrapped around, less than nothing."""
    said = units.amounts({"memory": "8Ei"})["memory"]
    assert amounts.total(np.array([[said] * 3, [1, 2, 3]], np.int64)).tolist() == [
        amounts.INFINITE,
        6,
    ]


def test_a_cluster_without_nodes_has_nothing() -> None:
    assert amounts.total(np.zeros((2, 0), np.int64)).tolist() == [0, 0]
