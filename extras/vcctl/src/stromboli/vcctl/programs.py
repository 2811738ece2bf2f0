"""The programs: vcctl with its command groups, and vsub, vjobs and others with one command each."""

import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stromboli.cli.commands import pods
from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.shared import keys
from stromboli.vcctl import jobs, queues, shell, tables, workloads

pod = shell.program("pod")


@pod.callback()
def _pod() -> None:
    """Pod operations."""


@pod.command("list", context_settings=shell.CONTEXT)
def list_pods(
    namespace: shell.Namespace = jobs.NAMESPACE,
    job: Annotated[str, typer.Option("--job", "-j", help="Only pods of this job.")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="Only pods of this queue.")] = "",
    all_namespaces: shell.AllNamespaces = False,
    master: shell.Master = None,
    kubeconfig: shell.Kubeconfig = None,
) -> None:
    """List pods of jobs."""
    with shell.client(master, kubeconfig) as client:
        read = pods.read(client, None if all_namespaces else namespace)
    rows = [
        one
        for one in read
        if pods.matches_job_and_queue(one, job or None, None if job else queue or None)
    ]
    for one in rows:
        if job and queue and one.metadata.label(keys.QUEUE_NAME) != queue:
            raise CommandError(
                f"pod {one.metadata.name}",
                f"it is not in queue {queue}",
                "specify the queue of the job, or leave it out",
            )
    if not rows:
        output.show_lines([shell.NOTHING])
        return
    output.show_lines(tables.pods(rows, datetime.now(UTC), all_namespaces=all_namespaces))


app = shell.program("vcctl")
app.add_typer(jobs.job, name="job")
app.add_typer(queues.queue, name="queue")
app.add_typer(pod, name="pod")
app.add_typer(workloads.jobflow, name="jobflow")
app.add_typer(workloads.jobtemplate, name="jobtemplate")


@app.callback()
def _vcctl() -> None:
    """Volcano's command line on Stromboli."""


@app.command("version", context_settings=shell.CONTEXT)
def version() -> None:
    """Show the version."""
    number = metadata.version("stromboli-vcctl")
    output.show_lines(
        [
            "API Version: v1alpha1",
            f"Version: stromboli-{number}",
            "Git SHA: Not provided.",
            "Built At: Not provided.",
            f"Go Version: none (Python {platform.python_version()})",
            f"Go OS/Arch: {sys.platform}/{platform.machine()}",
        ]
    )


@app.command("help", context_settings=shell.CONTEXT)
def help_of(
    ctx: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...")] = None,
) -> None:
    """Help about any command."""
    context: Any = ctx.parent
    for word in words or ():
        command = context.command
        subcommand = command.get_command(context, word) if isinstance(command, TyperGroup) else None
        if subcommand is None:
            raise CommandError(
                "help", f"unknown command {' '.join(words or ())!r}", "see: vcctl help"
            )
        context = typer.Context(subcommand, info_name=word, parent=context)
    output.show_lines([context.command.get_help(context)])


def vcctl() -> None:
    """The entry point of vcctl."""
    shell.run(app, "vcctl", sys.argv[1:])


def vsub() -> None:
    """The entry point of vsub."""
    _single(jobs.vsub)


def vjobs() -> None:
    """The entry point of vjobs."""
    _single(jobs.vjobs)


def vqueues() -> None:
    """The entry point of vqueues."""
    _single(queues.vqueues)


def vcancel() -> None:
    """The entry point of vcancel."""
    _single(jobs.vcancel)


def vsuspend() -> None:
    """The entry point of vsuspend."""
    _single(jobs.vsuspend)


def vresume() -> None:
    """The entry point of vresume."""
    _single(jobs.vresume)


def single(function: Callable[..., None]) -> typer.Typer:
    """A Typer app for a program that has a single command."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(function.__name__, context_settings=shell.CONTEXT)(function)
    return app


def _single(function: Callable[..., None]) -> None:
    shell.run(single(function), function.__name__, sys.argv[1:])
