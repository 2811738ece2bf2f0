"""``strom queue``: create, list, get and delete queues."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from stromboli.cli import apply, options, output
from stromboli.shared.api import kinds, scheduling

if TYPE_CHECKING:
    from stromboli.cli.client import Client

app = typer.Typer(cls=options.Group, help="Create, list, get and delete queues.")

PHASES = ("Inqueue", "Pending", "Running", "Unknown", "Completed")
"""Phases of PodGroups, in the columns that users know."""
HEADERS = ("NAME", "STATE", "WEIGHT", "PARENT", *(phase.upper() for phase in PHASES))
Counts = Counter[tuple[str, str]]
"""(queue, phase of PodGroups) -> number."""


@app.command("create")
def create(
    name: options.QueueName,
    weight: Annotated[
        int, typer.Option("--weight", "-w", min=1, max=65535, help="Its share beside others.")
    ] = 1,
    capability: Annotated[
        str | None, typer.Option("--capability", help="What it may use at most: cpu=8,memory=16Gi.")
    ] = None,
    deserved: Annotated[
        str | None, typer.Option("--deserved", help="What it can claim back from others.")
    ] = None,
    guarantee: Annotated[
        str | None, typer.Option("--guarantee", help="What it always has.")
    ] = None,
    parent: Annotated[str, typer.Option("--parent", help="The queue that it is part of.")] = "",
    reclaimable: Annotated[
        bool, typer.Option(help="Whether others may claim back what it uses beyond its share.")
    ] = True,
    server: options.Server = None,
) -> None:
    """Create a queue."""
    spec: dict[str, Any] = {"weight": weight, "reclaimable": reclaimable}
    if amounts := options.resources(capability, "--capability"):
        spec["capability"] = amounts
    if amounts := options.resources(deserved, "--deserved"):
        spec["deserved"] = amounts
    if amounts := options.resources(guarantee, "--guarantee"):
        spec["guarantee"] = {"resource": amounts}
    if parent:
        spec["parent"] = parent
    document = {
        "apiVersion": kinds.QUEUES.api_version,
        "kind": kinds.QUEUES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    with options.client(server) as client:
        stored = client.create_queue(document)
    output.show_lines([f"{apply.title(stored, name)} created"])


@app.command("list")
def list_queues(
    output_format: options.Output = output.Format.TABLE, server: options.Server = None
) -> None:
    """List queues, with their PodGroups by phase."""
    with options.client(server) as client:
        raws = client.queues()
        if output_format is output.Format.TABLE:
            queues = [client.decode(kinds.QUEUES, raw) for raw in raws]
            counts = _counts(client)
        else:
            output.show_document(output_format, output.as_list([_named(raw) for raw in raws]))
            return
    if not queues:
        output.show_note("No queues found.")
        return
    queues.sort(key=lambda queue: queue.metadata.name)
    output.show_table(HEADERS, [row(queue, counts) for queue in queues])


@app.command("get")
def get(
    name: options.QueueName,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show a queue: its share, its limits, and its PodGroups by phase."""
    with options.client(server) as client:
        raw = client.queue(name)
        if output_format is not output.Format.TABLE:
            output.show_document(output_format, _named(raw))
            return
        queue, counts = client.decode(kinds.QUEUES, raw), _counts(client)
    output.show_table(HEADERS, [row(queue, counts)])
    output.show_lines(shares(queue))


@app.command("delete")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="QUEUE...", help="Names of queues.")],
    server: options.Server = None,
) -> None:
    """Delete queues."""
    with options.client(server) as client:
        for name in names:
            client.delete_queue(name)
            output.show_lines([f"queue.{kinds.QUEUES.group}/{name} deleted"])


def row(queue: scheduling.Queue, counts: Counts) -> tuple[str, ...]:
    """A queue as a row under ``HEADERS``."""
    name = queue.metadata.name
    return (
        name,
        queue.status.state or "Open",
        str(queue.spec.weight),
        queue.spec.parent,
        *(str(counts[name, phase]) for phase in PHASES),
    )


def shares(queue: scheduling.Queue) -> Sequence[str]:
    """What the queue may use, can claim and always has; only what is set."""
    spec = queue.spec
    lines = {
        "capability": spec.capability,
        "deserved": spec.deserved,
        "guarantee": spec.guarantee.resource,
    }
    return [
        f"{label:<11} " + ", ".join(f"{name} {amount}" for name, amount in amounts.items())
        for label, amounts in lines.items()
        if amounts
    ]


def _counts(client: "Client") -> Counts:
    """All PodGroups by queue and phase; one without a phase is Pending."""
    groups = (client.decode(kinds.POD_GROUPS, raw) for raw in client.pod_groups())
    return Counter((group.spec.queue, group.status.phase or "Pending") for group in groups)


def _named(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    document = msgspec.json.decode(raw)
    return {"apiVersion": kinds.QUEUES.api_version, "kind": kinds.QUEUES.kind, **document}
