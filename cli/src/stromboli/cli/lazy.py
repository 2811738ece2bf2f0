"""Command groups that import a command's module only when that command is called.

Importing every module of ``strom`` costs 0.2 s of CPU and a command needs a few of them. A group
therefore lists its commands as data: the name, where the code is, and the line that ``--help``
shows. Tests compare these lines with the docstrings of the commands.
"""

import copy
import importlib
import inspect
import sys
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_name, get_group
from typer.models import CommandInfo

from stromboli.cli.parameters import help_types
from stromboli.cli.plain_values import use_plain_values

STYLE: Any = "rich" if sys.stdout.isatty() else None
"""Help is in panels on a terminal, and plain text for programs and files."""


class Entry(NamedTuple):
    """A command of a group.

    ``target`` is ``module:attribute``, a function or a Typer app. ``summary`` is the line in the
    group's help. ``command_class`` is the attribute of the same module with the command's class,
    empty for the usual one.
    """

    target: str
    summary: str
    command_class: str = ""


class LazyCommand(TyperCommand):
    """A placeholder with the name and the line of help of a command; ``load`` imports the
    command."""

    def load(self, style: Any) -> Any:
        """Import the command's module and return the command."""
        raise NotImplementedError


class OwnCommand(LazyCommand):
    """A command of this distribution."""

    def __init__(self, name: str, entry: Entry) -> None:
        super().__init__(name=name, help=entry.summary)
        self._entry = entry

    def load(self, style: Any) -> Any:
        """Import the command's module and return the command."""
        module_name, _, attribute = self._entry.target.partition(":")
        module = importlib.import_module(module_name)
        command_class = getattr(module, self._entry.command_class or "_", None)
        return build(self.name or "", getattr(module, attribute), style, command_class)


class RegisteredCommand(LazyCommand):
    """A command that a Typer app has registered. ``load`` reads its parameters, which takes a
    millisecond of CPU."""

    def __init__(self, info: CommandInfo) -> None:
        function: Any = info.callback
        super().__init__(
            name=info.name or get_command_name(function.__name__),
            help=info.help or inspect.getdoc(function),
            short_help=info.short_help,
            hidden=info.hidden,
            deprecated=info.deprecated,
            rich_help_panel=info.rich_help_panel,
        )
        self._info = info

    def load(self, style: Any) -> Any:
        """Return the command."""
        holder = typer.Typer(add_completion=False, rich_markup_mode=style)
        holder.registered_commands.append(self._info)
        return _only_command(holder)


def build(name: str, target: Any, style: Any, command_class: Any = None) -> Any:
    """The command of a function, or the group of a Typer app. The commands of a ``Group`` are
    placeholders."""
    holder = typer.Typer(add_completion=False, rich_markup_mode=style)
    if not isinstance(target, typer.Typer):
        holder.command(name, cls=command_class)(target)
        return _only_command(holder)
    group_class = target.info.cls
    if not (isinstance(group_class, type) and issubclass(group_class, Group)):
        holder.add_typer(target, name=name)
        return _only_command(holder)
    without_commands = copy.copy(target)
    without_commands.registered_commands = []
    holder.add_typer(without_commands, name=name)
    group = _only_command(holder)
    placeholders = map(RegisteredCommand, target.registered_commands)
    group.commands = {it.name: it for it in placeholders} | group.commands
    return group


def _only_command(holder: typer.Typer) -> Any:
    """The command or group that a Typer app consists of."""
    (command,) = get_group(holder).commands.values()
    help_types.use_user_words(command)
    return command


def loaded(command: Any) -> Any:
    """The command itself, imported now if it is lazy."""
    return command.load(STYLE) if isinstance(command, LazyCommand) else command


def use_context_namespace(command: Any) -> None:
    """Let ``--namespace`` default to the namespace of the selected context."""
    for param in command.params:
        if param.name == "namespace" and param.default == "default":
            from stromboli.cli import options

            param.default = options.default_namespace()


class Group(TyperGroup):
    """A group of commands that shows its help when no command is named.

    ``entries`` holds the commands by name, in the order of the help. ``aliases`` maps further
    names, which --help does not list, to the names in ``entries``. ``other_words`` maps words of
    other programs to the commands that errors suggest.
    """

    entries: ClassVar[dict[str, Entry]] = {}
    aliases: ClassVar[dict[str, str]] = {}
    other_words: ClassVar[dict[str, str]] = {}

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse the arguments; without any, show the help."""
        use_plain_values(self)
        return super().parse_args(ctx, args or ["--help"])

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """The names of all commands except aliases, in the order of the help."""
        return [*self.entries, *super().list_commands(ctx)]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """The command with this name or alias, not imported yet; None if it does not exist."""
        name = self.aliases.get(cmd_name, cmd_name)
        entry = self.entries.get(name)
        return OwnCommand(name, entry) if entry else super().get_command(ctx, name)

    def aliases_of(self, name: str) -> list[str]:
        """The other names of a command."""
        return [alias for alias, meant in self.aliases.items() if meant == name]

    def join_name(self, words: list[str]) -> list[str]:
        """The words; a command name of two words, such as ``history backup``, becomes one word.
        Such commands exist where the first word alone is a command with an optional argument."""
        pair = " ".join(words[:2])
        return [pair, *words[2:]] if pair in self.entries else words

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """The command that the arguments call, imported now, under its own name."""
        args = self.join_name(args)
        word = args[0]
        is_name = word[:1].isalnum() and not ctx.resilient_parsing
        if is_name and self.get_command(ctx, word) is None:
            if word in self.other_words:
                ctx.fail(f"No such command {word!r}; use {self.other_words[word]}")
            from stromboli.cli.usage_errors import did_you_mean

            known = [*self.list_commands(ctx), *self.aliases]
            ctx.fail(f"No such command {word!r}{did_you_mean(word, known)}")
        name, command, rest = super().resolve_command(ctx, args)
        loaded_command = loaded(command)
        use_plain_values(loaded_command)
        use_context_namespace(loaded_command)
        return (self.aliases.get(name, name) if name else name), loaded_command, rest


class GetGroup(Group):
    """A group of a kind that has one detailed view: ``describe`` is the same as ``get``."""

    aliases: ClassVar[dict[str, str]] = {"describe": "get"}
