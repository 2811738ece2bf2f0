"""``strom top``: resource usage by queue, job or node."""

import contextlib
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.errors import CommandError
from stromboli.cli.render import output, usage

if TYPE_CHECKING:
    from stromboli.cli.client import Client


class What(StrEnum):
    """The objects in the rows of the table."""

    QUEUES = "queues"
    JOBS = "jobs"
    NODES = "nodes"


def top(
    what: Annotated[
        What,
        typer.Argument(
            metavar="[queues|jobs|nodes]", help="Rows of the table: queues, jobs or nodes."
        ),
    ] = (What.QUEUES),
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="DURATION", help="Refresh interval.")
    ] = "2s",
    server: options.Server = None,
) -> None:
    """Show resource usage by queue, job or node.

    On a terminal the display refreshes until Ctrl-C.
    Usage is the sum of the requests of pods that are bound to a node. A queue includes its
    children; its amounts are used/limit, where the limit is its capability (cap) or its deserved
    amount (des).
    """
    pause_s = options.duration_s(every, "--every") or 2.0
    with options.client(server) as client:
        if once or not sys.stdout.isatty():
            facts, headers, rows = read_table(client, what)
            width = output.columns() if sys.stdout.isatty() else None
            output.show_lines([*headline(facts, width), ""])
            output.show_table(headers, rows)
            return
        # Ctrl-C is the usual way to end it, so it is not an error.
        with contextlib.suppress(KeyboardInterrupt):
            _live(client, what, pause_s)


def headline(facts: Sequence[str], width: int | None) -> list[str]:
    """The facts about the cluster: in one line if it fits the width, else one line each."""
    line = output.GAP.join(facts)
    return [line] if width is None or len(line) <= width else list(facts)


def screen(
    facts: Sequence[str],
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    height: int,
) -> list[str]:
    """The lines that fit on a terminal of this size; the last line counts the other rows. Its cost
    grows with the height, not with the rows: laying out 10,000 of them takes 2 s."""
    above = [*headline(facts, width), ""]
    kept = list(rows[:height])
    while True:
        lines = [*above, *output.table(headers, kept, width)] if kept else above
        if len(kept) < len(rows):
            lines.append(f"and {len(rows) - len(kept)} more: strom top --once")
        if len(lines) <= height or not kept:
            return lines
        # A table would lose as many rows as there are excess lines; a block has several lines.
        kept = kept[: len(kept) - max((len(lines) - height) // len(headers), 1)]


def read_table(
    client: "Client", what: What
) -> tuple[list[str], tuple[str, ...], list[tuple[str, ...]]]:
    """Facts about the cluster, headers and rows. Raises CommandError."""
    objects = usage.read(_scheduling_input(client))
    if what is What.QUEUES:
        headers, rows = usage.queues(objects)
    elif what is What.JOBS:
        headers, rows = usage.jobs(objects, datetime.now(UTC))
    else:
        headers, rows = usage.nodes(objects)
    return usage.headline(objects), headers, rows


def _scheduling_input(client: "Client") -> tuple[msgspec.Raw, ...]:
    """The objects that the scheduler reads. Raises CommandError that counts the missing rights."""
    from stromboli.cli.client import ForbiddenError

    try:
        return client.scheduling_input().items
    except ForbiddenError as error:
        raise CommandError(
            "top",
            f"it reads the whole cluster: {len(error.violations)} permissions are missing",
            "list your own jobs: strom job list -n NAMESPACE; or ask a cluster administrator for a "
            "role that reads the scheduler's input",
        ) from None


def _live(client: "Client", what: What, pause_s: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        while True:
            size = live.console.size
            lines = screen(*read_table(client, what), size.width, size.height)
            live.update(Text.from_ansi("\n".join(lines), no_wrap=True), refresh=True)
            time.sleep(pause_s)
