"""Rules of phases and durations as people write them."""

import pytest

from stromboli.cli import parsing


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30.0), ("0.5s", 0.5), ("5m", 300.0), ("1.5h", 5400.0), ("1h30m", 5400.0)],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert parsing.duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "5d", "1e3", "1h30", "9" * 400])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write 30s"):
        parsing.duration_s(text)


def test_phases_are_known_whatever_their_case() -> None:
    assert parsing.phases("completed, FAILED") == {"Completed", "Failed"}
    with pytest.raises(ValueError, match="'Done' is not a phase; use one of Pending,"):
        parsing.phases("Completed,Done")
