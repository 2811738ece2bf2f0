"""Rules of showing."""

from datetime import UTC, datetime, timedelta

import pytest
from rich.text import Text

from stromboli.cli.render import output

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_plain_table_is_as_wide_as_its_cells_and_has_no_blanks_at_the_end() -> None:
    name = "a-" + "very-" * 60 + "long-name"
    lines = output.plain(("NAME", "PHASE"), [(name, "Running"), ("b", "")])
    assert lines == [
        "NAME" + " " * (len(name) - 4) + "   PHASE",
        f"{name}   Running",
        "b" + " " * (len(name) - 1) + "   -",
    ]


HEADERS = ("NAME", "PHASE", "FAILED", "WHY")
ROWS = [
    ("train", "Running", "0", "because of this and that, and some more"),
    ("b", "Failed", "0", ""),
]


def shown(width: int) -> list[str]:
    return [Text.from_ansi(line).plain for line in output.table(HEADERS, ROWS, width)]


def test_a_table_that_fits_a_terminal_is_the_one_that_programs_see_in_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = output.table(HEADERS, ROWS, 80)
    assert shown(80) == output.plain(HEADERS, ROWS)
    assert "\x1b[36mRunning" in lines[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.table(HEADERS, ROWS, 80) == output.plain(HEADERS, ROWS)


def test_on_a_narrow_terminal_empty_columns_are_removed_first() -> None:
    assert shown(60) == [
        "NAME    PHASE     WHY",
        "train   Running   because of this and that, and some more",
        "b       Failed    -",
    ]


def test_then_the_last_column_is_wrapped() -> None:
    assert shown(45) == [
        "NAME    PHASE     WHY",
        "train   Running   because of this and that,",
        "                  and some more",
        "b       Failed    -",
    ]


def test_finally_each_row_is_a_block_with_the_complete_name() -> None:
    assert shown(40) == [
        "train",
        "  PHASE  Running",
        "  WHY    because of this and that, and",
        "         some more",
        "b",
        "  PHASE  Failed",
    ]


def test_on_a_narrow_terminal_an_index_of_0_is_not_an_empty_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows of an array's indexes 0 and 1 differ in nothing else."""
    monkeypatch.setenv("NO_COLOR", "1")
    headers = ("TASK", "INDEX", "EXIT", "RESTARTS", "NODE")
    assert output.table(headers, [("w", "0", "0", "0", "n1")], 24) == [
        "w",
        "  INDEX  0",
        "  EXIT   0",
        "  NODE   n1",
    ]


def test_a_table_that_grows_has_its_headers_once_and_its_columns_below_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = output.StreamingTable(("NAME", "PHASE"))
    table.show([("a", "Pending"), ("long", "")])
    table.show([("a", "Running")])
    table.show([("longest", "Failed")])
    table.show([("a", "Failed")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME   PHASE",
        "a      Pending",
        "long   -",
        "a      Running",
        "longest   Failed",
        "a         Failed",
    ]


def test_on_a_narrow_terminal_a_growing_table_wraps_or_uses_blocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its headers are printed once, and no column is omitted: a later row may have a
    value in it.
    """
    monkeypatch.setenv("NO_COLOR", "1")
    table = output.StreamingTable(("NAME", "FAILED", "WHY"), 42)
    table.show([("a", "0", "because of this and that")])
    table.show([("long", "0", "because of this and that, and some more")])
    table.show([("longest", "1", "because of this"), ("b", "0", "")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME   FAILED   WHY",
        "a      0        because of this and that",
        "long   0        because of this and that,",
        "                and some more",
        "longest",
        "  FAILED  1",
        "  WHY     because of this",
        "b",
    ]


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
