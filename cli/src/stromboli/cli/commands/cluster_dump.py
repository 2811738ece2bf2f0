"""``strom cluster``: what the scheduler sees of a cluster, to try decisions on it elsewhere."""

from datetime import UTC, datetime

import typer

from stromboli.cli import options
from stromboli.cli.render import output

app = typer.Typer(cls=options.Group, help="Write down what the scheduler sees of the cluster.")


@app.callback()
def _group() -> None:
    """Write down what the scheduler sees of the cluster."""


@app.command("dump")
def dump(server: options.Server = None) -> None:
    """Print what the scheduler sees as `strom simulate session --objects` takes it.

    Nodes with their topology, shards and devices, namespaces, priority classes, queues, quotas,
    disruption budgets, volumes and who claims them, PodGroups and pods, with nothing that
    scheduling does not look at: no secrets, environments, commands, drivers' parameters or foreign
    annotations.
    """
    with options.client(server) as client:
        seen = client.scheduling_input()
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    lines = ",\n".join(bytes(item).decode() for item in seen.items)
    output.show_lines([f'{{"apiVersion":"v1","kind":"List","items":[\n{lines}\n]}}'])
    for unread in seen.unread:
        output.show_note(f"strom: cannot be read, and is left out: {unread}")
    output.show_note(f"next: strom simulate session --objects FILE --config CONFIG --now {now}")
