"""Commands of other distributions: entry points of one group, imported only when called."""

import ast
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand
from typer.main import get_group

from stromboli.cli.errors import CommandError

if TYPE_CHECKING:
    from importlib import metadata

ENTRY_POINTS = "stromboli.commands"
"""Distributions add commands under this group: a Typer app or a function each, under its name."""


def entry_points() -> "tuple[metadata.EntryPoint, ...]":
    """All that is installed."""
    from importlib import metadata  # 25 ms that our own commands need not pay

    return tuple(metadata.entry_points(group=ENTRY_POINTS))


class LazyCommand(TyperCommand):
    """A command of another distribution as ``strom --help`` lists it.

    Its import may cost seconds (``up`` brings the whole system), so the line of help is read from
    the source of its function.
    """

    def __init__(self, entry: "metadata.EntryPoint") -> None:
        super().__init__(name=entry.name, help=_summary(entry))
        self._entry = entry

    def load(self, style: Any) -> Any:
        """The command itself; one that cannot be had says so when it is called."""
        holder = typer.Typer(add_completion=False, rich_markup_mode=style)
        try:
            loaded = self._entry.load()
        except Exception as error:  # whatever its import raises, other commands go on
            return _BrokenCommand(self._entry, f"{type(error).__name__}: {error}".splitlines()[0])
        if isinstance(loaded, typer.Typer):
            holder.add_typer(loaded, name=self._entry.name)
        elif callable(loaded):
            holder.command(self._entry.name)(loaded)
        else:
            return _BrokenCommand(self._entry, f"{self._entry.value} is no command")
        return get_group(holder).commands[self._entry.name]


class _BrokenCommand(TyperCommand):
    """Stands for a command that cannot be imported."""

    def __init__(self, entry: "metadata.EntryPoint", reason: str) -> None:
        def fail() -> None:
            raise CommandError(
                entry.name, f"cannot be loaded: {reason}", f"install {_distribution(entry)} anew"
            )

        super().__init__(
            name=entry.name,
            callback=fail,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )


def _summary(entry: "metadata.EntryPoint") -> str:
    """What the entry is for, without importing its module: its function's docstring, or the help of
    its group of commands."""
    try:
        spec = importlib.util.find_spec(entry.module)
        source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        texts = [_docstring_summary(node, entry.attr) for node in ast.parse(source).body]
    except (ImportError, OSError, SyntaxError, UnicodeDecodeError):
        texts = []
    return next((text for text in texts if text), f"From {_distribution(entry)}.")


def _docstring_summary(node: ast.stmt, name: str) -> str | None:
    """What a statement of a module says of the name that it defines."""
    match node:
        case ast.FunctionDef(name=found) if found == name:
            return ast.get_docstring(node)
        case ast.Assign(targets=[ast.Name(id=found)], value=ast.Call(keywords=keywords)) if (
            found == name
        ):
            values = [each.value for each in keywords if each.arg == "help"]
            return next(
                (str(each.value) for each in values if isinstance(each, ast.Constant)), None
            )
    return None


def _distribution(entry: "metadata.EntryPoint") -> str:
    return entry.dist.name if entry.dist else "its distribution"
