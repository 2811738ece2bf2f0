"""``strom top``: who uses how much, live."""

import sys
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from stromboli.cli import options, output, usage

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
            line, headers, rows = _look(client, what)
            output.show_lines([line, ""])
            output.show_table(headers, rows)
            return
        _live(client, what, pause_s)


def _look(client: "Client", what: What) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    seen = usage.read(client.scheduling_input().items)
    if what is What.QUEUES:
        headers, rows = usage.queues(seen)
    elif what is What.JOBS:
        headers, rows = usage.jobs(seen, datetime.now(UTC))
    else:
        headers, rows = usage.nodes(seen)
    return usage.headline(seen), headers, rows


def _live(client: "Client", what: What, pause_s: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        while True:
            line, headers, rows = _look(client, what)
            fitting = rows[: max(live.console.height - 4, 1)]
            live.update(
                Group(Text(line), Text(""), output.rich_table(headers, fitting)), refresh=True
            )
            time.sleep(pause_s)
