"""Rules of showing."""

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from stromboli.cli import output

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_plain_table_is_as_wide_as_its_cells_and_has_no_blanks_at_the_end() -> None:
    name = "a-" + "very-" * 60 + "long-name"
    lines = output.plain_table(("NAME", "PHASE"), [(name, "Running"), ("b", "")])
    assert lines == [
        "NAME" + " " * (len(name) - 4) + "   PHASE",
        f"{name}   Running",
        "b" + " " * (len(name) - 1) + "   -",
    ]


def test_a_table_on_a_terminal_has_colours_and_cuts_nothing_either() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, color_system="standard", width=output.WIDE)
    console.print(output.rich_table(("NAME", "PHASE"), [("long-" * 60, "Running"), ("b", "")]))
    header, first, second = shown.getvalue().splitlines()
    assert "NAME" in header
    assert first.split() == ["long-" * 60, "\x1b[36mRunning\x1b[0m"]
    assert second.split() == ["b", "-"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600 + 60, "9h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (9 * 24 * 3600 + 3600, "9d"),
    ],
)
def test_an_age_has_the_units_that_matter(seconds: int, text: str) -> None:
    assert output.age(NOON - timedelta(seconds=seconds), NOON) == text


def test_an_age_that_is_not_known_is_a_dash() -> None:
    assert output.age(None, NOON) == "-"
