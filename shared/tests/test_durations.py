"""Durations have an end, and times that are reckoned with them do, too."""

from datetime import timedelta

import pytest

from stromboli.shared.formats import durations
from stromboli.testkit.builders import NOON


@pytest.mark.parametrize("text", ["8760001h", "-8760001h", "9999999999h", "9" * 5000 + "s"])
def test_a_duration_beyond_the_calendar_is_invalid(text: str) -> None:
    with pytest.raises(ValueError, match="longer than"):
        durations.duration(text)


def test_a_thousand_years_is_the_longest() -> None:
    assert durations.duration("8760000h") == timedelta(seconds=durations.LONGEST_S)
    assert durations.later(NOON, 2**63) == NOON + timedelta(seconds=durations.LONGEST_S)
    assert durations.later(NOON, -(2**63)) == NOON - timedelta(seconds=durations.LONGEST_S)
    assert durations.later(NOON, 90) == NOON + timedelta(seconds=90)
