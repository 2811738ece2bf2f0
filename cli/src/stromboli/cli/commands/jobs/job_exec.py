"""``strom job exec``: run a command in a container of a job.

With ``strom up`` the server runs it. On a cluster the command connects to the API server with the
user's own kubeconfig: the server's account would otherwise need the right to run commands in all
pods.
"""

import asyncio
import sys
from typing import Annotated

import typer

from stromboli.cli import options
from stromboli.cli.commands.jobs import trailing_command
from stromboli.cli.errors import UsageError
from stromboli.cli.job_specs import job_reference

COMMAND_CLASS = trailing_command.CommandWithTrailingArguments
SHELL = ("sh",)

Task = Annotated[str | None, typer.Option("--task", metavar="NAME", help="Only pods of this task.")]
Index = Annotated[
    int | None, typer.Option("--index", min=0, help="Only the pod with this index in its task.")
]
Container = Annotated[
    str | None,
    typer.Option(
        "--container", "-c", metavar="NAME", help="The container, if the pod has several."
    ),
]
Tool = Annotated[str, typer.Option("--tool", metavar="NAME", help="The pod of this debug tool.")]


def exec_in(
    ctx: typer.Context,
    name: options.JobName,
    task: Task = None,
    index: Index = None,
    container: Container = None,
    tool: Tool = "",
    stdin: Annotated[
        bool, typer.Option("--stdin", "-i", help="Pass stdin to the command.")
    ] = False,
    tty: Annotated[
        bool,
        typer.Option(
            "--tty", "-t", help="Allocate a terminal (TTY) for the command; requires --stdin."
        ),
    ] = False,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Run a command in a running pod of a job.

    strom job exec train -- nvidia-smi

    The pod is the first running one, or the one of --task and --index, or of JOB[7]. Without a
    command, a shell is started (-i, and -t on a terminal). The exit code is that of the command. On
    a cluster your kubeconfig and your own rights are used.
    """
    command = trailing_command.trailing_arguments(ctx)
    if not command:
        stdin, tty, command = True, sys.stdin.isatty(), SHELL
    if tty and not (stdin and sys.stdin.isatty()):
        why = "-t needs -i, and stdin must be a terminal"
        raise UsageError("--tty", why, "leave out -t, or run strom on a terminal with -it")
    from stromboli.cli.sessions import selection, terminal

    place = selection.select(
        name, namespace, server, task=task, index=index, container=container, tool=tool
    )
    with selection.translated(namespace, job_reference.split(name, index)[0]):
        code = asyncio.run(terminal.run(place.place, place, command, stdin=stdin, tty=tty))
    raise typer.Exit(code)
