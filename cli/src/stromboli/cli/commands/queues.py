"""``strom queue``: every command about queues, and those that make, list, show and delete them."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from stromboli.cli import options, selectors
from stromboli.cli.commands import queue_changes
from stromboli.cli.errors import CommandError
from stromboli.cli.render import listing, output
from stromboli.client import calls
from stromboli.shared import keys
from stromboli.shared.api import kinds, scheduling

if TYPE_CHECKING:
    from stromboli.cli.client import Client

app = typer.Typer(cls=options.Group, help="Create queues, look at them, and change them.")

PHASES = ("Inqueue", "Pending", "Running", "Unknown", "Completed")
"""Phases of PodGroups, in the columns that users know."""
UNFINISHED = tuple(phase for phase in PHASES if phase != "Completed")
HEADERS = ("NAME", "STATE", "WEIGHT", "PARENT", *(phase.upper() for phase in PHASES))
WIDE_HEADERS = ("PRIORITY", "GUARANTEE", "DESERVED", "CAPABILITY", "ALLOCATED")
Counts = Counter[tuple[str, str]]
"""(queue, phase of PodGroups) -> number."""
Counted = Callable[[scheduling.Queue], Sequence[int]]


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
    watch: options.Watch = False,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """List queues, with their PodGroups by phase."""
    wanted = options.selector(selector)
    with options.client(server) as client:
        if watch:
            # To count all PodGroups anew with each change would cost too much: the status has it.
            listed = _listing(wanted, output_format, reported_counts)
            listing.follow(client, listed, output_format, calls.watch_queues())
            return
        raws = client.queues()
        numbers = count_pod_groups(client) if output_format.is_table else Counts()
        counted = functools.partial(counts_of_queue, numbers)
        listing.show(client, _listing(wanted, output_format, counted), output_format, raws)


def _listing(
    wanted: selectors.Selector, output_format: output.Format, counted: Counted
) -> listing.Listing:
    is_wide = output_format is output.Format.WIDE

    def cells(queue: scheduling.Queue, now: datetime) -> tuple[str, ...]:
        del now
        return row(queue, counted(queue)) + (wide(queue) if is_wide else ())

    return listing.Listing(
        kind=kinds.QUEUES,
        what="queues",
        headers=HEADERS + (WIDE_HEADERS if is_wide else ()),
        row=cells,
        is_wanted=lambda queue: selectors.matches(wanted, queue.metadata.labels),
        has_namespace=False,
        state="STATE",
    )


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
        queue, numbers = client.decode(kinds.QUEUES, raw), count_pod_groups(client)
    is_wide = output_format is output.Format.WIDE
    cells = row(queue, counts_of_queue(numbers, queue)) + (wide(queue) if is_wide else ())
    output.show_table(HEADERS + (WIDE_HEADERS if is_wide else ()), [cells])
    output.show_lines([*shares(queue), *invalid_fields(queue)])


app.command("operate")(queue_changes.operate)
app.command("update")(queue_changes.update)


@app.command("delete")
def delete(
    names: options.QueueNames,
    force: Annotated[
        bool, typer.Option("--force", help="Also while work is in it, which then has no queue.")
    ] = False,
    server: options.Server = None,
) -> None:
    """Delete queues that no work is in."""
    with options.client(server) as client:
        numbers = None if force else count_pod_groups(client)

        def remove(name: str) -> str:
            if numbers is not None:
                reject_nonempty(name, numbers)
            client.delete_queue(name)
            return f"{output.title(kinds.QUEUES, name)} deleted"

        options.for_each(names, remove)


def reject_nonempty(name: str, numbers: Counts) -> None:
    """Raises CommandError for a queue with PodGroups that have not ended: nothing of them would be
    placed any more, and what runs of them would be counted in no queue."""
    phases = {phase: numbers[name, phase] for phase in UNFINISHED if numbers[name, phase]}
    if phases:
        listed = ", ".join(f"{count} {phase}" for phase, count in phases.items())
        raise CommandError(
            f"queue {name}",
            f"not deleted: work is in it ({listed}), which would have no queue",
            f"close it and let that end: strom queue operate {name} --action close; "
            "or delete it all the same with --force",
        )


def row(queue: scheduling.Queue, counted: Sequence[int]) -> tuple[str, ...]:
    """A queue as a row under ``HEADERS``; ``counted``: its PodGroups in each of ``PHASES``."""
    return (
        queue.metadata.name,
        queue.status.state or "Open",
        str(queue.spec.weight),
        queue.spec.parent,
        *map(str, counted),
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


def invalid_fields(queue: scheduling.Queue) -> Sequence[str]:
    """What admission would refuse in the queue as it stands, if it came past it."""
    found = queue.metadata.annotation(keys.VIOLATIONS)
    return [f"{'invalid':<11} {found}"] if found else []


def _amounts(amounts: Mapping[str, object] | None, comma: str, equals: str = "=") -> str:
    return comma.join(f"{name}{equals}{amount}" for name, amount in (amounts or {}).items())


def counts_of_queue(counts: Counts, queue: scheduling.Queue) -> Sequence[int]:
    """How many of its PodGroups are in each of ``PHASES``."""
    return [counts[queue.metadata.name, phase] for phase in PHASES]


def reported_counts(queue: scheduling.Queue) -> Sequence[int]:
    """The same, as the controller last counted."""
    status = queue.status
    return (status.inqueue, status.pending, status.running, status.unknown, status.completed)


def count_pod_groups(client: "Client") -> Counts:
    """All PodGroups by queue and phase; one without a phase is Pending."""
    groups = (client.decode(kinds.POD_GROUPS, raw) for raw in client.pod_groups())
    return Counter((group.spec.queue, group.status.phase or "Pending") for group in groups)
