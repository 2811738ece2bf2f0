"""How the results of Volcano's suites are compared with the rows of this repository."""

from tests.volcano.support import suites
from tests.volcano.support.suites import Row, Spec
from tools.real import volcano

KNOWN = Row(spec="Job waits", reason="text", why="other words")


def problems(
    *specs: tuple[str, str], rows: tuple[Row, ...] = (), message: str = suites.COMPARES
) -> list[str]:
    return suites.problems([Spec(text, state, 1.0, message) for text, state in specs], rows)


def test_a_spec_that_fails_needs_a_row() -> None:
    assert problems(("Job waits", "failed")) == ["failed, and no row says why: Job waits"]
    assert problems(("Job waits", "failed"), rows=(KNOWN,)) == []


def test_a_row_whose_spec_passes_or_is_gone_is_a_problem() -> None:
    assert problems(("Job waits", "passed"), rows=(KNOWN,)) == ["passes, remove its row: Job waits"]
    assert problems(("Job runs", "passed"), rows=(KNOWN,)) == ["no such spec: Job waits"]


def test_specs_that_were_not_run_meet_their_rows() -> None:
    assert problems(("Job waits", "skipped"), ("Job runs", "skipped"), rows=(KNOWN,)) == []


def test_of_two_specs_with_one_text_the_failed_one_counts() -> None:
    assert problems(("Job waits", "failed"), ("Job waits", "passed"), rows=(KNOWN,)) == []


def test_a_text_is_no_reason_for_another_failure() -> None:
    expected = ["fails, and not for a text: Job waits"]
    assert problems(("Job waits", "failed"), rows=(KNOWN,), message="timed out") == expected


def test_a_spec_that_may_pass_by_chance_meets_its_row_either_way() -> None:
    row = Row(spec="Job waits", reason="race", why="reads too early")
    assert problems(("Job waits", "passed"), rows=(row,)) == []
    assert problems(("Job waits", "failed"), rows=(row,)) == []


def test_every_row_is_of_a_suite_and_has_a_known_reason() -> None:
    assert suites.suites_with_rows() <= set(volcano.SUITES)
    for suite in volcano.SUITES:
        specs = [row.spec for row in suites.expectations(suite)]
        assert len(specs) == len(set(specs))
