"""``strom``: the commands, those that other distributions add, and how errors are told."""

import contextlib
import os
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from stromboli.cli import apply, explain, jobs, options, output, queues
from stromboli.cli.errors import USAGE, CommandError, UnreachableError

ENTRY_POINTS = "stromboli.commands"
"""Distributions add commands under this group: a Typer app or a function each, under its name."""
TRACEBACK = "STROM_TRACEBACK"
"""Set, errors that nobody expected are shown in full."""
BROKEN_PIPE = 141
"""As a shell has it for a command whose reader went away: 128 + SIGPIPE."""


class Root(TyperGroup):
    """All commands. Those of other distributions are imported only when called or listed."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command, say what went wrong, and exit with its code."""
        try:
            code = super().main(
                args,
                prog_name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        except CommandError as error:
            _tell(error.lines())
            code = error.exit_code
        except typer.TyperException as error:
            _tell(_usage_lines(error))
            code = error.exit_code
        except typer.Abort:
            _tell(["strom: stopped"])
            code = 1
        except Exception as error:
            if os.environ.get(TRACEBACK):
                raise
            _tell(
                [
                    f"strom: this is a bug in strom: {type(error).__name__}: {error}",
                    f"next: report it with what this shows: {TRACEBACK}=1 strom ...",
                ]
            )
            code = 1
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Our own, groups of commands first, then others' by name."""
        own = sorted(
            self.commands, key=lambda name: not isinstance(self.commands[name], TyperGroup)
        )
        return own + sorted({entry.name for entry in _entries()} - set(own))

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """The command of that name, or None."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        entry = next((entry for entry in _entries() if entry.name == cmd_name), None)
        return None if entry is None else _added(entry)


STYLE: Any = "rich" if sys.stdout.isatty() else None
"""Help in panels on a terminal, plain elsewhere: it is for programs and files then."""

app = typer.Typer(
    name="strom",
    cls=Root,
    help="Stromboli's command line: gangs of pods in queues, over its REST API.",
    no_args_is_help=True,
    rich_markup_mode=STYLE,
)
app.add_typer(jobs.app, name="job")
app.add_typer(queues.app, name="queue")
app.command("apply")(apply.apply)
app.command("explain")(explain.explain)


@app.command("version")
def version(server: options.Server = None) -> None:
    """Show strom's version, and whether the server is ready."""
    number = metadata.version("stromboli-cli")
    output.show_lines([f"strom {number} (Python {platform.python_version()})"])
    with options.client(server) as client:
        where = f"server {client.address.url} ({client.address.origin})"
        try:
            waits_for = client.waits_for()
        except UnreachableError as error:
            output.show_lines([f"{where}: not reachable: {error.why}"])
            return
    problems = [
        f"{service}: {fact}: {problem}"
        for service, facts in waits_for.items()
        for fact, problem in facts.items()
    ]
    output.show_lines([f"{where}: {'not ready' if problems else 'ready'}"])
    output.show_lines(f"  {problem}" for problem in problems)


def main() -> None:
    """The entry point of the script ``strom``."""
    try:
        try:
            app(prog_name="strom")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BROKEN_PIPE)


def _entries() -> tuple[metadata.EntryPoint, ...]:
    return tuple(metadata.entry_points(group=ENTRY_POINTS))


def _added(entry: metadata.EntryPoint) -> Any:
    """The command of another distribution; one that cannot be had says so when it is called."""
    holder = typer.Typer(add_completion=False, rich_markup_mode=STYLE)
    try:
        loaded = entry.load()
    except Exception as error:  # whatever its import raises, other commands go on
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return _Broken(entry, reason)
    if isinstance(loaded, typer.Typer):
        holder.add_typer(loaded, name=entry.name)
    elif callable(loaded):
        holder.command(entry.name)(loaded)
    else:
        return _Broken(entry, f"{entry.value} is no command")
    return get_group(holder).commands[entry.name]


class _Broken(TyperCommand):
    """Stands for a command that could not be imported."""

    def __init__(self, entry: metadata.EntryPoint, reason: str) -> None:
        distribution = entry.dist.name if entry.dist else "its distribution"

        def fail() -> None:
            raise CommandError(
                entry.name, f"cannot be loaded: {reason}", f"install {distribution} anew"
            )

        super().__init__(
            name=entry.name,
            callback=fail,
            help=f"(cannot be loaded: {reason})",
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )


def _usage_lines(error: typer.TyperException) -> list[str]:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "strom"
    message = error.format_message().strip().rstrip(".")
    if not message:  # the help was shown instead
        return []
    if error.exit_code != USAGE:
        return [f"strom: {message}", f"next: see {path} --help"]
    command = path.removeprefix("strom").strip()
    what = f"strom: {command}: {message}" if command else f"strom: {message}"
    return [what, f"next: see what it takes: {path} --help"]


def _tell(lines: Sequence[str]) -> None:
    """On stderr, the first line in red where there are colours."""
    for number, line in enumerate(lines):
        typer.secho(line, err=True, fg=None if number else "red")
