"""``strom``: the commands, those that other distributions add, and how errors are told."""

import contextlib
import errno
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stromboli.cli import installed_commands, options, usage_errors
from stromboli.cli.commands import (
    apply,
    cluster_dump,
    explain,
    nodes,
    pod_groups,
    pods,
    queues,
    top,
    topology,
    workloads,
)
from stromboli.cli.commands.jobs import jobs
from stromboli.cli.errors import REFUSED, CommandError, UnreachableError
from stromboli.cli.render import output

TRACEBACK = "STROM_TRACEBACK"
"""Set, errors that nobody expected are shown in full."""
BROKEN_PIPE = 141
"""As a shell has it for a command whose reader went away: 128 + SIGPIPE."""


class Root(options.Group):
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
            output.show_error(error.lines())
            code = error.exit_code
        except typer.TyperException as error:
            words = sys.argv[1:] if args is None else args
            output.show_error(_usage_error_lines(error, *self._called(prog_name or "strom", words)))
            code = error.exit_code
        except typer.Abort:
            output.show_error(["strom: stopped"])
            code = 1
        except Exception as error:
            if os.environ.get(TRACEBACK) or _cannot_write(error):
                raise
            output.show_error(
                [
                    f"strom: this is a bug in strom: {type(error).__name__}: {error}",
                    f"next: report it with what this shows: {TRACEBACK}=1 strom ...",
                ]
            )
            code = 1
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code

    def _called(self, name: str, words: Sequence[str]) -> tuple[str, Any]:
        """The path of the command that these words call, and the command."""
        path: list[str] = [name]
        command: Any = self
        for word in words:
            group = command if isinstance(command, TyperGroup) else None
            found = group.get_command(typer.Context(group), word) if group else None
            if found is not None:
                path.append(word)
                command = (
                    found.load(STYLE)
                    if isinstance(found, installed_commands.LazyCommand)
                    else found
                )
        return " ".join(path), command

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Our own, groups of commands first, then others' by name."""
        own = sorted(
            self.commands, key=lambda name: not isinstance(self.commands[name], TyperGroup)
        )
        return own + sorted({entry.name for entry in installed_commands.entry_points()} - set(own))

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """The command of that name, or None. One of another distribution is not imported yet."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        return next(
            (
                installed_commands.LazyCommand(entry)
                for entry in installed_commands.entry_points()
                if entry.name == cmd_name
            ),
            None,
        )

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """The command that the arguments call, imported by now."""
        name, command, rest = super().resolve_command(ctx, args)
        return (
            name,
            command.load(STYLE) if isinstance(command, installed_commands.LazyCommand) else command,
            rest,
        )


STYLE: Any = "rich" if sys.stdout.isatty() else None
"""Help in panels on a terminal, plain elsewhere: it is for programs and files then."""

app = typer.Typer(
    name="strom",
    cls=Root,
    help="Stromboli's command line: gangs of pods in queues, over its REST API.",
    rich_markup_mode=STYLE,
)
app.add_typer(jobs.app, name="job")
app.add_typer(queues.app, name="queue")
app.add_typer(pods.app, name="pod")
app.add_typer(pod_groups.app, name="podgroup")
app.add_typer(nodes.app, name="node")
app.add_typer(workloads.flows, name="flow")
app.add_typer(workloads.templates, name="template")
app.add_typer(workloads.crons, name="cron")
app.add_typer(cluster_dump.app, name="cluster")
app.command("apply")(apply.apply)
app.command("explain")(explain.explain)
app.command("top")(top.top)
app.command("topology")(topology.topology)


@app.callback()
def _common(
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File with the token that says who you are. Else STROM_TOKEN, STROM_TOKEN_FILE.",
        ),
    ] = None,
    ca_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="PEM file of the authority that vouches for the server. Else STROM_CA_FILE.",
        ),
    ] = None,
) -> None:
    """What holds for every command, and stands before it."""
    options.CREDENTIALS.set((token_file, ca_file))


@app.command("version")
def version(server: options.Server = None) -> None:
    """Show strom's version, and whether the server is ready."""
    from importlib import metadata  # 25 ms that others need not pay

    number = metadata.version("stromboli-cli")
    output.show_lines([f"strom {number} (Python {platform.python_version()})"])
    with options.client(server) as client:
        where = f"server {client.address.url} ({client.address.origin})"
        try:
            is_ready, said = client.readiness()
        except UnreachableError as error:
            output.show_lines([f"{where}: not reachable: {error.why}"])
            return
    problems = [
        f"{service}: {fact}: {problem}"
        for service, facts in said.items()
        for fact, problem in facts.items()
    ]
    output.show_lines([f"{where}: {'ready' if is_ready else 'not ready'}"])
    output.show_lines(f"  {problem}" for problem in problems)


def main() -> None:
    """The entry point of the script ``strom``."""
    _run("strom")


def plugin() -> None:
    """The entry point of ``kubectl-strom``, which kubectl calls for ``kubectl strom``."""
    _run("kubectl strom")


def complete_plugin() -> None:
    """The entry point of ``kubectl_complete-strom``, which kubectl asks what may come next.

    It takes the words so far and prints one possibility a line, and then ``:4``: no file names.
    """
    words = sys.argv[1:]
    os.environ |= {
        "_STROM_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(["strom", *words]),
        "COMP_CWORD": str(len(words)),
    }
    try:
        app(prog_name="strom")
    finally:
        output.show_lines([":4"])


def _run(name: str) -> None:
    try:
        try:
            app(prog_name=name)
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and not _cannot_write(error):
            raise
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(BROKEN_PIPE)
        output.show_error([f"strom: output: {error.strerror}", "next: name a place that takes it"])
        sys.exit(REFUSED)


def _cannot_write(error: Exception) -> bool:
    """Whether stdout takes no more: its disk is full or broken. Errors about files name theirs."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    return isinstance(error, OSError) and error.errno in full and error.filename is None


def _usage_error_lines(error: typer.TyperException, path: str, called: Any) -> list[str]:
    """What is wrong and the way on. ``called``: the command of that path, which an error about an
    option that lacks its value does not know."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else path
    message = usage_errors.parser_message(error)
    command = path.removeprefix("kubectl ").removeprefix("strom").strip()
    what = f"strom: {command}: {message}" if command else f"strom: {message}"
    if context and isinstance(context.command, TyperGroup) and message.startswith("No such option"):
        return [what, f"next: options stand behind the command; see {path} --help"]
    about = usage_errors.option_help(error, called)
    return [what, *about, f"next: see what it takes: {path} --help"]
