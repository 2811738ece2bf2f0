"""Commands of other distributions: entry points of one group, imported only when called."""

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from stromboli.cli import lazy
from stromboli.cli.errors import CommandError

if TYPE_CHECKING:
    from importlib import metadata

ENTRY_POINTS = "stromboli.commands"
"""Distributions add commands under this group: a Typer app or a function each, under its name."""


def entry_points() -> "tuple[metadata.EntryPoint, ...]":
    """All installed entry points of the group."""
    from stromboli.shared import entry_points  # 25 ms that our own commands need not pay

    return tuple(entry_points.of_group(ENTRY_POINTS))


class InstalledCommand(lazy.LazyCommand):
    """A command of another distribution.

    Its import may cost seconds (``up`` imports the whole system), so its line of help is read from
    the source of its function.
    """

    def __init__(self, entry: "metadata.EntryPoint") -> None:
        from stromboli.cli.source_summary import summary  # parses Python: 20 ms

        super().__init__(
            name=entry.name,
            help=summary(entry.module, entry.attr) or f"From {_distribution(entry)}.",
        )
        self._entry = entry

    def load(self, style: Any) -> Any:
        """Import and return the command. One that cannot be imported fails when it is called."""
        try:
            loaded = self._entry.load()
        except Exception as error:  # whatever its import raises, other commands still work
            return _BrokenCommand(self._entry, f"{type(error).__name__}: {error}".splitlines()[0])
        if not callable(loaded):
            return _BrokenCommand(self._entry, f"{self._entry.value} is not a command")
        return lazy.build(self._entry.name, loaded, style)


class _BrokenCommand(TyperCommand):
    """Placeholder for a command that cannot be imported."""

    def __init__(self, entry: "metadata.EntryPoint", reason: str) -> None:
        def fail() -> None:
            raise CommandError(
                entry.name, f"cannot be loaded: {reason}", f"reinstall {_distribution(entry)}"
            )

        super().__init__(
            name=entry.name,
            callback=fail,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )


def _distribution(entry: "metadata.EntryPoint") -> str:
    return entry.dist.name if entry.dist else "its distribution"
