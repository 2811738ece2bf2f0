"""``strom top``: who uses how much, live."""

import sys
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stromboli.cli import options, output, usage
from stromboli.cli.errors import CommandError

if TYPE_CHECKING:
    from stromboli.cli.client import Client


class What(StrEnum):
    """By what use is shown."""

    QUEUES = "queues"
    JOBS = "jobs"
    NODES = "nodes"


def top(
    what: Annotated[What, typer.Argument(metavar="[queues|jobs|nodes]", help="By what.")] = (
        What.QUEUES
    ),
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="DURATION", help="How often it is shown anew.")
    ] = "2s",
    server: options.Server = None,
) -> None:
    """Show who uses how much: queues, jobs or nodes, live on a terminal. Ctrl-C ends it.

    Amounts are what running pods have asked for, as the scheduler counts them.
    """
    pause_s = options.duration_s(every, "--every") or 2.0
    with options.client(server) as client:
        if once or not sys.stdout.isatty():
            line, headers, rows = look(client, what)
            output.show_lines([line, ""])
            output.show_table(headers, rows)
            return
        _live(client, what, pause_s)


def look(client: "Client", what: What) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """A line about the whole, and the table below it with its headers. Raises CommandError."""
    seen = usage.read(_input(client))
    if what is What.QUEUES:
        headers, rows = usage.queues(seen)
    elif what is What.JOBS:
        headers, rows = usage.jobs(seen, datetime.now(UTC))
    else:
        headers, rows = usage.nodes(seen)
    return usage.headline(seen), headers, rows


def _input(client: "Client") -> tuple[msgspec.Raw, ...]:
    """All that scheduling looks at, or one line about the many rights that this takes."""
    from stromboli.cli.client import ForbiddenError

    try:
        return client.scheduling_input().items
    except ForbiddenError as error:
        raise CommandError(
            "top",
            f"it reads the whole cluster, and {len(error.violations)} rights for that are missing",
            "look at your own jobs: strom job list -n NAMESPACE; or ask who gives roles in your "
            "cluster for one that reads what scheduling looks at",
        ) from None


def _live(client: "Client", what: What, pause_s: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        while True:
            line, headers, rows = look(client, what)
            fitting = rows[: max(live.console.height - 4, 1)]
            live.update(
                Group(Text(line), Text(""), output.rich_table(headers, fitting)), refresh=True
            )
            time.sleep(pause_s)
