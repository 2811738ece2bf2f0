"""``strom job port-forward``: reach a port of a job's pod from this machine."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from stromboli.cli import options
from stromboli.cli.commands.jobs import job_exec
from stromboli.cli.errors import CommandError, UsageError
from stromboli.cli.job_specs import job_reference
from stromboli.cli.render import output
from stromboli.shared.jobspec import debug_tools

if TYPE_CHECKING:
    from stromboli.cli.sessions.selection import SessionPlace


def port_forward(
    name: options.JobName,
    ports: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LOCAL:]REMOTE...",
            help="Ports: 8080, 9090:80, or :80 for a free one. [default: that of --tool]",
        ),
    ] = None,
    task: job_exec.Task = None,
    index: job_exec.Index = None,
    tool: job_exec.Tool = "",
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Forward local ports to a running pod of a job.

    strom job port-forward train 8888

    Ctrl-C ends the forwarding. The pod is the first running one, or the one of --task and --index,
    or of JOB[7], or that of a debug tool. On a cluster your kubeconfig and your own rights are
    used.
    """
    from stromboli.cli.sessions import forwarding, selection

    if not ports and tool not in debug_tools.TOOLS:
        why = "it is missing"
        raise UsageError(
            "[LOCAL:]REMOTE", why, f"specify a port, or --tool {'|'.join(debug_tools.TOOLS)}"
        )
    try:
        pairs = [forwarding.parse(text) for text in ports or [str(debug_tools.TOOLS[tool].port)]]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="[LOCAL:]REMOTE") from None
    job = job_reference.split(name, index)[0]
    place = selection.select(
        name,
        namespace,
        server,
        task=task,
        index=index,
        container=None,
        any_container=True,
        tool=tool,
    )
    with selection.translated(namespace, job):
        asyncio.run(_forward(place, pairs))


async def _forward(place: "SessionPlace", pairs: list[tuple[int, int]]) -> None:
    from stromboli.cli.sessions import forwarding

    async with contextlib.AsyncExitStack() as stack:
        for local, remote in pairs:
            opened = forwarding.forwarding(place.place, place, local, remote)
            try:
                port = await stack.enter_async_context(opened)
            except OSError as error:
                why = error.strerror or str(error)
                raise CommandError(
                    f"port {local}", why, f"use a free local port: :{remote}, or LOCAL:{remote}"
                ) from None
            output.show_lines([f"127.0.0.1:{port} -> {place.pod}:{remote}"])
        await asyncio.get_running_loop().create_future()  # until it is interrupted
