"""Counts with their nouns."""

import pytest

from stromboli.shared.formats.counts import counted


@pytest.mark.parametrize(
    ("count", "nouns", "text"),
    [
        (0, ("pod",), "0 pods"),
        (1, ("pod",), "1 pod"),
        (2, ("pod",), "2 pods"),
        (1, ("index", "indexes"), "1 index"),
        (2, ("index", "indexes"), "2 indexes"),
    ],
)
def test_one_is_singular_and_every_other_count_plural(
    count: int, nouns: tuple[str, ...], text: str
) -> None:
    assert counted(count, *nouns) == text
