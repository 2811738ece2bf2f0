"""``strom top``: who uses how much, live."""

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
            facts, headers, rows = read_table(client, what)
            width = output.columns() if sys.stdout.isatty() else None
            output.show_lines([*headline(facts, width), ""])
            output.show_table(headers, rows)
            return
        # Ctrl-C is the way to end it, so nothing has gone wrong then.
        with contextlib.suppress(KeyboardInterrupt):
            _live(client, what, pause_s)


def headline(facts: Sequence[str], width: int | None) -> list[str]:
    """What is said of the whole, in one line if it has room; None has."""
    line = output.GAP.join(facts)
    return [line] if width is None or len(line) <= width else list(facts)


def screen(
    facts: Sequence[str],
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    height: int,
) -> list[str]:
    """What fits on a terminal, and how many rows do not."""
    above = [*headline(facts, width), ""]
    kept = list(rows)
    while True:
        lines = [*above, *output.table(headers, kept, width)] if kept else above
        if len(kept) < len(rows):
            lines.append(f"and {len(rows) - len(kept)} more: strom top --once")
        if len(lines) <= height or not kept:
            return lines
        # As many rows as there are lines too many would go in a table; a block has several.
        kept = kept[: len(kept) - max((len(lines) - height) // len(headers), 1)]


def read_table(
    client: "Client", what: What
) -> tuple[list[str], tuple[str, ...], list[tuple[str, ...]]]:
    """Facts about the whole, and the table below it with its headers. Raises CommandError."""
    seen = usage.read(_scheduling_input(client))
    if what is What.QUEUES:
        headers, rows = usage.queues(seen)
    elif what is What.JOBS:
        headers, rows = usage.jobs(seen, datetime.now(UTC))
    else:
        headers, rows = usage.nodes(seen)
    return usage.headline(seen), headers, rows


def _scheduling_input(client: "Client") -> tuple[msgspec.Raw, ...]:
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
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        while True:
            size = live.console.size
            lines = screen(*read_table(client, what), size.width, size.height)
            live.update(Text.from_ansi("\n".join(lines), no_wrap=True), refresh=True)
            time.sleep(pause_s)
