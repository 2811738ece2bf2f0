"""Types of values in help texts, as users write them: ``N`` instead of ``<int range>``."""

import functools
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup

WORDS = {
    "<int>": "N",
    "<int range>": "N",
    "<float>": "N",
    "<float range>": "N",
    "<str>": "TEXT",
    "<list[str]>": "TEXT",
    "<path>": "PATH",
    "<list[Path]>": "PATH",
}
"""Type in the help texts of Typer -> ours. Choices remain: ``<table|json>``."""


def use_user_words(command: Any) -> None:
    """Change the types in the help of a command, and of the commands of a group. Arguments show
    no type: their names are sufficient."""
    if isinstance(command, TyperGroup):
        for inner in command.commands.values():
            use_user_words(inner)
    for param in command.params:
        if isinstance(param, TyperArgument):
            param.display_type_rich = lambda ctx: None  # type: ignore[method-assign]  # no subclass
        else:
            param.display_type = functools.partial(_in_words, param.display_type)


def _in_words(original: Callable[[typer.Context], str], ctx: typer.Context) -> str:
    label = original(ctx)
    return WORDS.get(label, label)
