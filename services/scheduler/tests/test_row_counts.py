"""Pods per node, by term or port: the same numbers as arrays, in memory that follows the pods."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stromboli.scheduler.core.cluster import row_counts
from stromboli.testkit.strategies import depth

thorough = depth.examples(100)
SIZE = 40


@thorough
@given(
    st.lists(st.tuples(st.integers(0, SIZE - 1), st.sampled_from((1, 1, 1, -1))), max_size=80),
    st.permutations(range(-3, SIZE)),
)
def test_counts_are_those_of_an_array(changes: list[tuple[int, int]], order: list[int]) -> None:
    """Also after rows have moved, including new ones (negative) and a deleted one."""
    counts: row_counts.CountsBy[str] = row_counts.CountsBy()
    counts.reorder_rows(np.full(SIZE, -1, np.intp))
    expected = np.zeros(SIZE, np.int64)
    for row, change in changes:
        if expected[row] + change >= 0:
            expected[row] += change
            counts.add("key", row, change)
    sources = np.maximum(np.array(order[1:], np.intp), -1)
    moved = np.where(sources < 0, 0, expected[sources])
    for wanted in (expected, moved):
        found = counts.get("key")
        assert (found is None) == (not wanted.any())
        if found is not None:
            rows, values = found.rows()
            assert found.dense().tolist() == wanted.tolist()
            assert dict(zip(rows.tolist(), values.tolist(), strict=True)) == {
                row: count for row, count in enumerate(wanted.tolist()) if count
            }
        counts.reorder_rows(sources)


def test_keys_of_few_pods_cost_memory_by_pod() -> None:
    counts: row_counts.CountsBy[int] = row_counts.CountsBy()
    counts.reorder_rows(np.full(10_000, -1, np.intp))
    for key in range(1_000):
        counts.add(key, key * 7 % 10_000, 1)
    assert counts.bytes_used <= 1_000 * 100
    for row in range(10_000):
        counts.add(-1, row, 1)
    assert counts.bytes_used <= 1_000 * 100 + 8 * 10_000, "an array is smaller for many rows"


def test_a_session_counts_beside_the_model() -> None:
    """The model's counts do not change; keys of the session only are reported as new."""
    known: row_counts.CountsBy[str] = row_counts.CountsBy()
    known.reorder_rows(np.full(100, -1, np.intp))
    known.add("known", 1, 2)
    session = row_counts.SessionCountsBy(known, 100)
    session.add("known", 1, -2)
    session.add("new", 3, 1)
    assert (len(session), list(session)) == (2, ["known", "new"])
    assert [session[key].dense().sum() for key in ("known", "new", "absent")] == [0, 1, 0]
    found = known.get("known")
    assert found is not None
    assert found.dense()[1] == 2
