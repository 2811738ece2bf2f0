"""Rules of phases and durations as people write them."""

import pytest

from stromboli.cli.parameters import parsing


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("0.5s", 0.5),
        ("5m", 300.0),
        ("1.5h", 5400.0),
        ("1h30m", 5400.0),
        ("7d", 604800.0),
        ("1d12h", 129600.0),
    ],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert parsing.duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "5w", "d", "1e3", "1h30", "9" * 400])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write 30s"):
        parsing.duration_s(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400), ("90m", 5400), ("1h30m", 5400), ("2d", 172800), ("10:00:00", 36000),
        ("1-00:00:00", 86400), ("1-12", 129600), ("1-12:30", 131400), ("0:0:90", 90),
    ],
)  # fmt: skip
def test_a_time_limit_is_a_duration_or_a_time_as_of_sbatch(text: str, seconds: int) -> None:
    assert parsing.time_limit(text).total_seconds() == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "0", "-5m", "1-", "1-x", "1:2:3:4", "1.5", "9" * 400, "0:00:00"]
)
def test_an_invalid_time_limit_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (positive )?duration"):
        parsing.time_limit(text)


def test_a_time_with_one_colon_is_rejected_since_it_has_two_meanings() -> None:
    with pytest.raises(ValueError, match="'10:30' may be minutes or hours; write 10:30:00"):
        parsing.time_limit("10:30")


def test_phases_are_known_whatever_their_case() -> None:
    assert parsing.phases("completed, FAILED") == {"Completed", "Failed"}
    with pytest.raises(ValueError, match="'Done' is not a phase; use one of Pending,"):
        parsing.phases("Completed,Done")
