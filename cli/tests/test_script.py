"""Rules of scripts with ``#STROM`` lines."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.cli.job_specs import script

TEXT = """#!/bin/bash
# A comment.
#STROM --gpus 8 --time 4h   # of each pod

#STROM --env 'A=b c'
python train.py
# another comment
"""


def test_lines_before_the_first_command_hold_options() -> None:
    found = script.parse("dir/train.sh", TEXT)
    assert [(line.number, line.words) for line in found.lines] == [
        (3, ("--gpus", "8", "--time", "4h")),
        (5, ("--env", "A=b c")),
    ]
    assert (found.name, script.stem("dir/train.sh")) == ("train.sh", "train")


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        (TEXT + "#STROM --gpus 1\n", 8, "#STROM after the first command (line 6)"),
        ("#STROM --env 'A=b\n", 1, "no closing quotation"),
        ("#!/usr/bin/perl\n", 1, "perl cannot run a script that is given as an argument"),
        ("#!\n", 1, "nothing cannot run a script"),
        ("import os\n", 1, "it does not begin with #! and an interpreter"),
        ("", 1, "it does not begin with #! and an interpreter"),
        ("a\0b", 1, "the file is binary"),
        ("x" * 103_000, 1, "it has more than 100 KiB"),
    ],
)
def test_an_error_is_reported_with_its_line(text: str, line: int, why: str) -> None:
    with pytest.raises(script.ScriptError, match=re.escape(why)) as raised:
        script.parse("a.sh", text)
    assert raised.value.line == line
    assert raised.value.next_step


def test_the_error_about_a_missing_interpreter_names_one() -> None:
    with pytest.raises(script.ScriptError) as raised:
        script.parse("dir/train.py", "import os\n")
    assert raised.value.next_step == (
        "begin it with #!/usr/bin/env python3, or run a file of the image: "
        "strom job run -- python train.py"
    )


def test_a_similar_line_is_a_comment() -> None:
    assert script.parse("a", "#!/bin/sh\n#STROMBOLI is an island\n# STROM --gpus 1\n").lines == ()


@pytest.mark.parametrize(
    ("first", "command"),
    [
        ("#!/bin/bash -e", ("/bin/bash", "-e", "-c", "#!/bin/bash -e", "a.sh", "x")),
        ("#!/usr/bin/env bash", ("bash", "-c", "#!/usr/bin/env bash", "a.sh", "x")),
        (
            "#!/usr/bin/env -S bash -u",
            ("bash", "-u", "-c", "#!/usr/bin/env -S bash -u", "a.sh", "x"),
        ),
        ("#!/usr/bin/python3.12", ("/usr/bin/python3.12", "-c", "#!/usr/bin/python3.12", "x")),
    ],
)
def test_the_interpreter_is_the_scripts_own(first: str, command: tuple[str, ...]) -> None:
    assert script.parse("a.sh", first).command(("x",)) == command


@pytest.mark.parametrize(
    ("argument", "is_script"), [("train.sh", True), ("./train", True), ("train", False)]
)
def test_a_jobs_name_has_no_dot_and_no_slash(argument: str, is_script: bool) -> None:
    assert script.is_script(argument) is is_script


def expanded(text: str, environment: dict[str, str]) -> str:
    """A container's command after Kubernetes' expansion
    (k8s.io/kubernetes/third_party/forked/golang/expansion): ``$$`` is a dollar, ``$(NAME)`` the
    variable's value if it exists.
    """
    made, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            made, at = made + text[at], at + 1
        elif text[at + 1] == "$":
            made, at = made + "$", at + 2
        elif text[at + 1] == "(" and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            made, at = made + environment.get(name, text[at : end + 1]), end + 1
        else:
            made, at = made + text[at : at + 2], at + 2
    return made


@given(st.text(alphabet="$()A b", max_size=30))
def test_a_script_arrives_as_it_was_written(text: str) -> None:
    """Whatever dollars are in it, and whatever variables the container has."""
    text = f"#!/bin/sh\n{text}"
    words = script.parse("a.sh", text).command(())
    assert expanded(words[2], {"A": "replaced", "b": "replaced"}) == text
