"""The table of a job's life, and the page that is drawn from it."""

from typing import get_args

import pytest

from stromboli.controller import lifecycle_diagram
from stromboli.controller.core import lifecycle

ALL = [(phase, event) for phase in lifecycle.PHASES for event in get_args(lifecycle.Event)]


@pytest.mark.parametrize(("phase", "event"), [it for it in ALL if it not in lifecycle.TABLE])
def test_a_move_that_is_not_in_the_table_raises(
    phase: lifecycle.Phase, event: lifecycle.Event
) -> None:
    with pytest.raises(lifecycle.IllegalTransitionError):
        lifecycle.transition(phase, event)
    assert not lifecycle.accepts(phase, event)


def test_nothing_leaves_a_finished_phase() -> None:
    assert not lifecycle.FINISHED & {phase for phase, _ in lifecycle.TABLE}


def test_every_phase_is_reached_and_every_other_one_is_left() -> None:
    reached = {move.to for move in lifecycle.TABLE.values()}
    assert reached | {""} == set(lifecycle.PHASES)
    assert {phase for phase, _ in lifecycle.TABLE} == set(lifecycle.PHASES) - lifecycle.FINISHED


def test_what_counts_as_a_try_is_a_restart_once_and_one_of_the_whole_begins_a_new_version() -> None:
    passing = lifecycle.STOPPING - lifecycle.FINISHED - {"Aborted"}
    for (phase, event), move in lifecycle.TABLE.items():
        is_part = event in lifecycle.PARTIAL
        assert move.retry == (move.to == "Restarting" and phase != "Restarting")
        assert move.new_version == (move.to in passing and not is_part)


def test_every_event_has_a_meaning_for_people() -> None:
    assert set(lifecycle.MEANING) == set(get_args(lifecycle.Event))


def test_the_page_in_the_docs_is_the_table() -> None:
    assert lifecycle_diagram.PLACE.read_text() == lifecycle_diagram.page()
    assert lifecycle_diagram.main(["--check"]) == 0
