"""Tests of the terminal recording in the README, which is drawn from the output of a terminal."""

import re

from tools.docs import terminal_recording
from tools.docs.terminal_recording import Line


def test_a_line_has_no_colours_and_the_last_text_that_was_printed_on_it() -> None:
    assert terminal_recording.plain(b"waiting\r\x1b[32mCompleted\x1b[0m  \r") == "Completed"


def test_a_command_is_recorded_with_what_it_prints() -> None:
    lines = [text for _, text in terminal_recording.run("echo one two", {"PATH": "/usr/bin:/bin"})]
    assert lines == ["one two"]


def test_a_line_of_the_recording_appears_when_it_was_printed() -> None:
    drawn = terminal_recording.drawing([Line(0.5, "$ a <b", is_typed=True), Line(2.25, "c")])
    assert re.findall(r'<text[^>]*>([^<]*)<set [^>]*end="([^"]*)"', drawn) == [
        ("$ a &lt;b", "0.5s"),
        ("c", "2.2s"),
    ]


def test_the_recording_has_the_commands_of_the_script() -> None:
    """After a change of the commands, run python -m tools.docs.terminal_recording."""
    drawn = terminal_recording.FILE.read_text(encoding="utf-8")
    assert re.findall(r"\$ (strom [^<]*)", drawn) == list(terminal_recording.COMMANDS)
