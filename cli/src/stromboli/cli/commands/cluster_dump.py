"""``strom cluster dump``: the scheduler's input, to replay its decisions elsewhere."""

from datetime import UTC, datetime

import typer

from stromboli.cli import lazy, options
from stromboli.cli.render import output

app = typer.Typer(cls=lazy.Group, help="Export the scheduler's view of the cluster.")


@app.callback()
def _group() -> None:
    """Export the scheduler's view of the cluster."""


@app.command("dump")
def dump(server: options.Server = None) -> None:
    """Print the scheduler's input as a List of objects.

    `strom simulate session --objects` reads it.

    The List has nodes with their topology, shards and devices, namespaces, priority classes,
    queues, quotas, disruption budgets, volumes and claims, PodGroups and pods. It contains only
    fields that the scheduler reads: no secrets, environments, commands, driver parameters or
    foreign annotations.
    """
    with options.client(server) as client:
        scheduling_input = client.scheduling_input()
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    lines = ",\n".join(bytes(item).decode() for item in scheduling_input.items)
    output.show_lines([f'{{"apiVersion":"v1","kind":"List","items":[\n{lines}\n]}}'])
    for unread in scheduling_input.unread:
        output.show_note(f"strom: left out, not readable: {unread}")
    output.show_note(f"next: strom simulate session --objects FILE --config CONFIG --now {now}")
