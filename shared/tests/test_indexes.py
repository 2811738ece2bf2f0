"""Sets of indexes: what users write, and arithmetic that never lists what it can keep as a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.shared.formats import indexes

NUMBERS = st.frozensets(st.integers(0, 40))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("7", "7"),
        ("0-3", "0-3"),
        ("3,1,2,2", "1-3"),
        ("0-10:5, 12", "0,5,10,12"),
        ("5-5", "5"),
    ],
)
def test_a_text_has_one_canonical_form(text: str, canonical: str) -> None:
    assert str(indexes.parse(text)) == canonical


@pytest.mark.parametrize("text", ["a", "3-1", "-1", "1-", "0-9:0", "1;2"])
def test_an_invalid_index_set_is_rejected_with_the_invalid_part(text: str) -> None:
    with pytest.raises(ValueError, match=repr(text)[1:-1]):
        indexes.parse(text)


def test_counting_lists_nothing() -> None:
    assert indexes.count("0-999999999,5") == 10**9 + 1


@given(NUMBERS)
def test_the_written_form_reads_back(numbers: frozenset[int]) -> None:
    found = indexes.of(numbers)
    assert indexes.parse(str(found)) == found
    assert sorted(numbers) == list(found)
    assert len(found) == len(numbers)
    assert all((number in found) == (number in numbers) for number in range(42))


@given(NUMBERS, NUMBERS, st.integers(0, 45))
def test_arithmetic_is_that_of_sets(
    left: frozenset[int], right: frozenset[int], count: int
) -> None:
    one, other = indexes.of(left), indexes.of(right)
    assert one | other == indexes.of(left | right)
    assert one - other == indexes.of(left - right)
    assert one.first(count) == indexes.of(sorted(left)[:count])


def test_ten_thousand_indexes_in_a_row_take_a_few_characters() -> None:
    assert str(indexes.of(range(10_000))) == "0-9999"
