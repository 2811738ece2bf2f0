"""``strom node history``: what ran on a node, with its devices, and changes of the node."""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.commands.accounting import history
from stromboli.cli.commands.nodes import node_maintenance
from stromboli.cli.parameters import time_options
from stromboli.cli.render import output
from stromboli.shared.api.views import accounting
from stromboli.shared.formats import counts

if TYPE_CHECKING:
    from stromboli.cli.client import Client

COLUMNS = (
    "allocated_at",
    "ended_at",
    "namespace",
    "job",
    "task",
    "index",
    "user",
    "state",
    "reason",
    "exit_code",
    "devices",
)
USUAL_LIMIT = 100
CHANGE_COLUMNS = ("at", "kind", "action", "field", "before", "after")
CHANGED = ("Node", "Hardware")
"""The kinds of changes that are about a node."""


def node_history(
    node: node_maintenance.NodeName,
    since: time_options.Since = "",
    until: time_options.Until = "",
    device: Annotated[
        str,
        typer.Option("--device", metavar="ID", help="Only attempts with this device: GPU-4f0c..."),
    ] = "",
    changes: Annotated[
        bool,
        typer.Option(
            "--changes",
            help="Changes of the node and errors of its GPUs, in place of attempts.",
        ),
    ] = False,
    limit: Annotated[
        int,
        typer.Option("--limit", min=0, help="Maximum number of rows, the newest first; 0: all."),
    ] = USUAL_LIMIT,
    output_format: Annotated[
        history.Format, typer.Option("--output", "-o", help="Output format.", case_sensitive=False)
    ] = history.Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show what ran on a node, with its devices.

    Lists the attempts of all namespaces that were bound to the node, the most recently created pod
    first; the node need not exist any more. Attempts that have not ended hold its resources. With
    --changes, lists when its labels, taints, resources and conditions changed, and when its GPUs
    had errors.
    """
    now = datetime.now(UTC)
    if changes:
        requested = accounting.ChangeQuery(
            name=node,
            since=time_options.time(since, now, "--since"),
            until=time_options.time(until, now, "--until"),
            limit=accounting.MOST_CHANGES,
        )
        with options.client(server) as client:
            of_node = (it for it in _changes(client, requested) if it.kind in CHANGED)
            _show_changes(list(itertools.islice(of_node, limit or None)), device, output_format)
        return
    query = accounting.AttemptQuery(
        node=node,
        device=device,
        since=time_options.time(since, now, "--since"),
        until=time_options.time(until, now, "--until"),
        limit=min(limit or accounting.ATTEMPTS_PER_PAGE, accounting.ATTEMPTS_PER_PAGE),
    )
    with options.client(server) as client:
        read = history.read_attempts(client, query)
        attempts = list(itertools.islice(read, limit + 1 if limit else None))
    if limit and len(attempts) > limit:
        attempts.pop()
        output.show_note(
            f"Only the newest {counts.counted(limit, 'attempt')}; use --limit 0 for all."
        )
    history.show(attempts, COLUMNS, output_format, now, f"No attempts on node {node} found.")


def change_rows(
    changes: list[accounting.ClusterChange], device: str = ""
) -> Iterator[tuple[str, ...]]:
    """A row for each field that changed, under ``CHANGE_COLUMNS``. ``device``: only this GPU."""
    for each in changes:
        fields = each.fields or (accounting.FieldChange(field="", before="", after=""),)
        for field in fields:
            if device in ("", field.field.removeprefix("gpus.")):
                at = time_options.short(each.at)
                yield (at, each.kind, each.action, field.field, field.before, field.after)


def _changes(client: "Client", query: accounting.ChangeQuery) -> Iterator[accounting.ClusterChange]:
    from stromboli.client.operations import accounting_calls

    for page in accounting_calls.pages(client.send, accounting_calls.changes, query):
        yield from page.changes


def _show_changes(
    changes: list[accounting.ClusterChange], device: str, output_format: history.Format
) -> None:
    rows = list(change_rows(changes, device))
    if output_format is history.Format.JSON:
        encoded = [dict(zip(CHANGE_COLUMNS, row, strict=True)) for row in rows]
        json_text = msgspec.json.format(msgspec.json.encode(encoded), indent=2).decode()
        output.show_lines([json_text])
    elif output_format is history.Format.CSV:
        output.show_lines([",".join(CHANGE_COLUMNS), *(history.csv_line(row) for row in rows)])
    elif not rows:
        output.show_note("No changes of this node found.")
    else:
        output.show_table([column.upper() for column in CHANGE_COLUMNS], rows)
