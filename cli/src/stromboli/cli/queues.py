"""``strom queue``: every command about queues, and those that make, list, show and delete them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stromboli.cli import options, output, queue_changes, selectors
from stromboli.shared.api import kinds, scheduling

if TYPE_CHECKING:
    from stromboli.cli.client import Client

app = typer.Typer(cls=options.Group, help="Create queues, look at them, and change them.")

PHASES = ("Inqueue", "Pending", "Running", "Unknown", "Completed")
"""Phases of PodGroups, in the columns that users know."""
HEADERS = ("NAME", "STATE", "WEIGHT", "PARENT", *(phase.upper() for phase in PHASES))
WIDE_HEADERS = ("PRIORITY", "GUARANTEE", "DESERVED", "CAPABILITY", "ALLOCATED")
Counts = Counter[tuple[str, str]]
"""(queue, phase of PodGroups) -> number."""


@app.command("create")
def create(
    name: options.QueueName,
    weight: Annotated[
        int, typer.Option("--weight", "-w", min=1, max=65535, help="Its share beside others.")
    ] = 1,
    capability: queue_changes.Capability = None,
    deserved: queue_changes.Deserved = None,
    guarantee: queue_changes.Guarantee = None,
    parent: Annotated[str, typer.Option("--parent", help="The queue that it is part of.")] = "",
    reclaimable: Annotated[
        bool, typer.Option(help="Whether others may claim back what it uses beyond its share.")
    ] = True,
    server: options.Server = None,
) -> None:
    """Create a queue."""
    spec = {
        "weight": weight,
        "reclaimable": reclaimable,
        **queue_changes.amounts(capability, deserved, guarantee),
    }
    if parent:
        spec["parent"] = parent
    document = {
        "apiVersion": kinds.QUEUES.api_version,
        "kind": kinds.QUEUES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    with options.client(server) as client:
        client.create_queue(document)
    output.show_lines([f"{output.title(kinds.QUEUES, name)} created"])


@app.command("list")
def list_queues(
    selector: options.Selector = "",
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """List queues, with their PodGroups by phase."""
    wanted = options.selector(selector)
    with options.client(server) as client:
        read = [(client.decode(kinds.QUEUES, raw), raw) for raw in client.queues()]
        found = sorted(
            (pair for pair in read if selectors.matches(wanted, pair[0].metadata.labels)),
            key=lambda pair: pair[0].metadata.name,
        )
        if not output_format.is_table:
            output.show_objects(output_format, kinds.QUEUES, [raw for _, raw in found], many=True)
            return
        numbers = counts(client)
    if not found:
        output.show_none("queues")
        return
    _show([queue for queue, _ in found], numbers, output_format)


@app.command("get")
def get(
    name: options.QueueName,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show a queue: its share, its limits, and its PodGroups by phase."""
    with options.client(server) as client:
        raw = client.queue(name)
        if not output_format.is_table:
            output.show_objects(output_format, kinds.QUEUES, [raw])
            return
        queue, numbers = client.decode(kinds.QUEUES, raw), counts(client)
    _show([queue], numbers, output_format)
    output.show_lines(shares(queue))


app.command("operate")(queue_changes.operate)
app.command("update")(queue_changes.update)


@app.command("delete")
def delete(
    names: options.QueueNames,
    server: options.Server = None,
) -> None:
    """Delete queues."""
    with options.client(server) as client:

        def remove(name: str) -> str:
            client.delete_queue(name)
            return f"{output.title(kinds.QUEUES, name)} deleted"

        options.for_each(names, remove)


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


def wide(queue: scheduling.Queue) -> tuple[str, ...]:
    """A queue as the rest of a row under ``WIDE_HEADERS``."""
    spec = queue.spec
    amounts = (spec.guarantee.resource, spec.deserved, spec.capability, queue.status.allocated)
    return (str(spec.priority), *(_amounts(one, ",") for one in amounts))


def shares(queue: scheduling.Queue) -> Sequence[str]:
    """What the queue may use, can claim and always has; only what is set."""
    spec = queue.spec
    lines = {
        "capability": spec.capability,
        "deserved": spec.deserved,
        "guarantee": spec.guarantee.resource,
    }
    return [
        f"{label:<11} {_amounts(amounts, ', ', ' ')}" for label, amounts in lines.items() if amounts
    ]


def _amounts(amounts: Mapping[str, object] | None, comma: str, equals: str = "=") -> str:
    return comma.join(f"{name}{equals}{amount}" for name, amount in (amounts or {}).items())


def _show(queues: Sequence[scheduling.Queue], counts: Counts, wanted: output.Format) -> None:
    is_wide = wanted is output.Format.WIDE
    headers = HEADERS + (WIDE_HEADERS if is_wide else ())
    output.show_table(
        headers, [row(queue, counts) + (wide(queue) if is_wide else ()) for queue in queues]
    )


def counts(client: "Client") -> Counts:
    """All PodGroups by queue and phase; one without a phase is Pending."""
    groups = (client.decode(kinds.POD_GROUPS, raw) for raw in client.pod_groups())
    return Counter((group.spec.queue, group.status.phase or "Pending") for group in groups)
