"""Shared by the programs: flags, error output, and the connection to the server."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from stromboli.cli import options
from stromboli.cli.errors import CommandError, NotFoundError
from stromboli.cli.render import output

FAILED = 255
NOTHING = "No resources found"
_LOG_FLAGS = ("--log-flush-frequency", "--vmodule", "--v", "-v")
"""Flags of Go's logging library glog, which every program accepts and ignores."""

Master = Annotated[
    str | None,
    typer.Option("--master", "-s", help="The server's address. [default: as strom finds it]"),
]
Kubeconfig = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig", "-k", help="Accepted and ignored: requests use Stromboli's REST API."
    ),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="The namespace.")]
JobName = Annotated[str, typer.Option("--name", "-N", help="The job's name.")]
OwnNamespace = Annotated[str, typer.Option("--namespace", "-N", help="The namespace.")]
OwnName = Annotated[str, typer.Option("--name", "-n", help="The name.")]
Scheduler = Annotated[str, typer.Option("--scheduler", "-S", help="The scheduler's name.")]
NameSelector = Annotated[
    str, typer.Option("--selector", help="Only jobs with this text in their name.")
]
AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", help="List objects of all namespaces.")
]

_RESOURCES = {
    "job": "jobs.batch.volcano.sh",
    "queue": "queues.scheduling.volcano.sh",
    "flow": "jobflows.flow.volcano.sh",
    "template": "jobtemplates.flow.volcano.sh",
}
"""Kind -> the API server's resource name."""
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


def program(name: str) -> typer.Typer:
    """A Typer app for the commands of a program. Volcano's programs have no shell completion."""
    return typer.Typer(
        name=name, cls=Group, add_completion=False, rich_markup_mode=None, context_settings=CONTEXT
    )


class Group(TyperGroup):
    """A group of commands that shows its help when none is named."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Show the help if there are no arguments."""
        return super().parse_args(ctx, args or ["--help"])


def run(app: typer.Typer, name: str, arguments: Sequence[str]) -> NoReturn:
    """Run a program to its exit: 0, or 255 with one line on stdout."""
    command = typer.main.get_command(app)
    words = _without_log_flags(arguments)
    try:
        code = command.main(words, prog_name=name, standalone_mode=False)
    except CommandError as error:
        code = _exit_with_error(command, words, reason(error))
    except typer.TyperException as error:
        code = _exit_with_error(command, words, error.format_message())
    sys.exit(code if isinstance(code, int) else 0)


def client(master: str | None, kubeconfig: str | None) -> Any:
    """A client of the server ``master``. A note on stderr says that ``kubeconfig`` is ignored."""
    if kubeconfig:
        output.show_note("note: --kubeconfig is ignored; requests use Stromboli's REST API")
    return options.client(master)


def required(name: str, what: str = "name") -> str:
    """The name. Raises CommandError if it is empty."""
    if not name:
        raise CommandError(what, "it is mandatory, and it is empty", f"set --{what}")
    return name


def _exit_with_error(command: Any, words: Sequence[str], reason: str) -> int:
    """Print the error with the subcommand's path, which is empty for a program of one command."""
    path = []
    for word in words:
        if not isinstance(command, TyperGroup) or word not in command.commands:
            break
        command = command.commands[word]
        path.append(word)
    output.show_lines([f"Failed to {' '.join(path)}: {reason}"])
    return FAILED


def reason(error: CommandError) -> str:
    """The error in one line; a missing object has the API server's text, which scripts search
    for."""
    if isinstance(error, NotFoundError):
        kind, _, name = error.what.partition(" ")
        return f'{_RESOURCES.get(kind, kind)} "{name.rpartition("/")[2]}" not found'
    return "; ".join((f"{error.what}: {error.why}", *error.details))


def _without_log_flags(arguments: Sequence[str]) -> list[str]:
    kept: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word in _LOG_FLAGS:
            next(rest, None)
        elif word.partition("=")[0] not in _LOG_FLAGS:
            kept.append(word)
    return kept
