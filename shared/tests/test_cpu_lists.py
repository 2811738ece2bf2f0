"""Lists of CPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.shared.formats import cpu_lists


def test_lists_of_cpus_are_read_and_written() -> None:
    assert cpu_lists.parsed("0-3, 8") == {0, 1, 2, 3, 8}
    assert cpu_lists.parsed("") == set()
    assert cpu_lists.written(frozenset({9, 0, 1, 2, 3, 5, 6})) == "0-3,5,6,9"


@pytest.mark.parametrize("wrong", ["x", "3-1", "1-", "-1", "0-99999999999"])
def test_an_invalid_list_is_an_error(wrong: str) -> None:
    """Also one that would fill the memory."""
    with pytest.raises(ValueError):
        cpu_lists.parsed(wrong)


@given(st.frozensets(st.integers(0, cpu_lists.HIGHEST), max_size=20))
def test_an_encoded_list_decodes_to_the_same_value(cpus: frozenset[int]) -> None:
    assert cpu_lists.parsed(cpu_lists.written(cpus)) == cpus
