"""``strom node history``: what ran on a node, with its devices."""

import itertools
from datetime import UTC, datetime
from typing import Annotated

import typer

from stromboli.cli import options, time_options
from stromboli.cli.commands.accounting import history
from stromboli.cli.commands.nodes import node_maintenance
from stromboli.cli.render import output
from stromboli.shared.api.views import accounting

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


def node_history(
    node: node_maintenance.NodeName,
    since: time_options.Since = "",
    until: time_options.Until = "",
    device: Annotated[
        str,
        typer.Option("--device", metavar="ID", help="Only attempts with this device: GPU-4f0c..."),
    ] = "",
    limit: Annotated[
        int,
        typer.Option(
            "--limit", min=0, help="Maximum number of attempts, the newest first; 0: all."
        ),
    ] = USUAL_LIMIT,
    output_format: Annotated[
        history.Format, typer.Option("--output", "-o", help="Output format.", case_sensitive=False)
    ] = history.Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show what ran on a node, with its devices.

    Lists the attempts of all namespaces that were bound to the node, the latest submission first;
    the node need not exist any more. Attempts that have not ended hold its resources.
    """
    now = datetime.now(UTC)
    query = accounting.AttemptQuery(
        node=node,
        device=device,
        since=time_options.time(since, now, "--since"),
        until=time_options.time(until, now, "--until"),
        limit=min(limit or accounting.ATTEMPTS_PER_PAGE, accounting.ATTEMPTS_PER_PAGE),
    )
    with options.client(server) as client:
        read = history.read_attempts(client, query)
        found = list(itertools.islice(read, limit + 1 if limit else None))
    if limit and len(found) > limit:
        found.pop()
        output.show_note(f"Only the newest {limit} attempts; use --limit 0 for all.")
    history.show(found, COLUMNS, output_format, now, f"No attempts on node {node} found.")
