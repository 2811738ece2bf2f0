"""The commands of ``strom`` that messages, docstrings and help name exist with their options."""

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import typer
from typer.core import TyperGroup

from stromboli.cli import main
from stromboli.cli.lazy import Group, loaded
from tests.docs.blocks import ROOT

SOURCES = ("cli", "client", "embedded", "shared", "services/*")
VALUE = "X"
"""Instead of the values in an f-string."""
HINT = re.compile(r"\bstrom ((?:[a-z]|X )[^\n;,:()`]*)")
"""Up to the end of the sentence or of the brackets."""
WORD = re.compile(r"[a-z][a-z-]+")
OPTION = re.compile(r"-[a-zA-Z]|--[a-z][a-z-]+")


class Hint(NamedTuple):
    """A command in a text of the file, as its words after ``strom``."""

    place: str
    words: tuple[str, ...]


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings of a module with their lines; a string in parts is one."""
    parts = set[int]()
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values, lineno=line):
                parts |= {id(each) for each in values}
                constants = (
                    each.value if isinstance(each, ast.Constant) else VALUE for each in values
                )
                yield line, "".join(map(str, constants))
            case ast.Constant(value=str(text), lineno=line) if id(node) not in parts:
                yield line, text


def hints() -> Iterator[Hint]:
    for package in SOURCES:
        for path in sorted(ROOT.glob(f"{package}/src/**/*.py")):
            source = path.read_text()
            if HINT.search(source) is None and "strom {" not in source:
                continue  # to parse all files takes many seconds
            for line, text in texts(ast.parse(source)):
                for match in HINT.finditer(text):
                    yield Hint(f"{path.relative_to(ROOT)}:{line}", tuple(match[1].split()))


def problem(words: tuple[str, ...]) -> str:
    """What of the command does not exist; empty if all does, and for a group alone."""
    command: Any = typer.main.get_command(main.app)
    context, rest = typer.Context(command, info_name="strom"), list(words)
    while isinstance(command, TyperGroup):
        if not rest or not WORD.fullmatch(rest[0]):
            return ""
        rest = command.join_name(rest) if isinstance(command, Group) else rest
        subcommand = command.get_command(context, rest[0])
        if subcommand is None:  # in a sentence, "strom" is followed by a verb
            return "" if command.name == "strom" else f"no {rest[0]} in {command.name}"
        command, rest = loaded(subcommand), rest[1:]
    known = {name for it in command.params for name in (*it.opts, *it.secondary_opts)}
    own = rest[: rest.index("--")] if "--" in rest else rest
    options = [word.partition("=")[0] for word in own if OPTION.match(word)]
    return ", ".join(f"no {name} of {command.name}" for name in options if name not in known)


def test_commands_that_messages_name_exist_with_their_options() -> None:
    """A hint with an option that does not exist leaves the user with a second error."""
    problems = {hint: text for hint in hints() if (text := problem(hint.words))}
    assert problems == {}


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("history --job X", "no --job of history"),
        ("job chat X", "no chat in job"),
        ("job exec X -- ls --all", ""),
        ("history backup FILE", ""),
        ("X list -n X", ""),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(command: str, text: str) -> None:
    assert problem(tuple(command.split())) == text
