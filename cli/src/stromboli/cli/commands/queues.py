"""``strom queue``: the command group, with create, list, get and delete."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from stromboli.cli import lazy, options
from stromboli.cli.commands import queue_changes
from stromboli.cli.errors import CommandError
from stromboli.cli.parameters import selectors
from stromboli.cli.render import listing, output
from stromboli.client.operations import calls
from stromboli.shared import keys
from stromboli.shared.api import kinds, scheduling

if TYPE_CHECKING:
    from stromboli.cli.client import Client


class QueueGroup(lazy.Group):
    """Commands about queues."""

    aliases: ClassVar[dict[str, str]] = {"describe": "get"}


app = typer.Typer(cls=QueueGroup, help="Create, inspect and change queues.")

PHASES = ("Inqueue", "Pending", "Running", "Unknown", "Completed")
"""Phases of PodGroups, in the order of the columns."""
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
        int,
        typer.Option("--weight", "-w", min=1, max=65535, help="Weight of the queue's fair share."),
    ] = 1,
    capability: queue_changes.Capability = None,
    deserved: queue_changes.Deserved = None,
    guarantee: queue_changes.Guarantee = None,
    parent: Annotated[str, typer.Option("--parent", help="The parent queue. [default: root]")] = "",
    reclaimable: Annotated[
        bool, typer.Option(help="Whether other queues may reclaim its usage beyond its share.")
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
    """List queues with the number of their PodGroups by phase."""
    wanted = options.selector(selector)
    with options.client(server) as client:
        if watch:
            # Listing all PodGroups at each change would cost too much; the status has counts.
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
        return row(queue, counted(queue)) + (wide_cells(queue) if is_wide else ())

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
    """Show a queue: its share, limits and PodGroups."""
    with options.client(server) as client:
        raw = client.queue(name)
        if not output_format.is_table:
            output.show_objects(output_format, kinds.QUEUES, [raw])
            return
        queue, numbers = client.decode(kinds.QUEUES, raw), count_pod_groups(client)
    is_wide = output_format is output.Format.WIDE
    cells = row(queue, counts_of_queue(numbers, queue)) + (wide_cells(queue) if is_wide else ())
    output.show_table(HEADERS + (WIDE_HEADERS if is_wide else ()), [cells])
    output.show_lines([*shares(queue), *invalid_fields(queue)])


app.command("update")(queue_changes.update)
app.command("open")(queue_changes.open_queues)
app.command("close")(queue_changes.close_queues)
app.command("operate", hidden=True)(queue_changes.operate)


@app.command("delete")
def delete(
    names: options.QueueNames,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also delete queues with unfinished PodGroups, which are then in no queue.",
        ),
    ] = False,
    server: options.Server = None,
) -> None:
    """Delete queues that have no unfinished PodGroups."""
    with options.client(server) as client:
        numbers = None if force else count_pod_groups(client)

        def remove(name: str) -> str:
            if numbers is not None:
                reject_nonempty(name, numbers)
            client.delete_queue(name)
            return f"{output.title(kinds.QUEUES, name)} deleted"

        options.for_each(names, remove)


def reject_nonempty(name: str, numbers: Counts) -> None:
    """Raises CommandError for a queue with unfinished PodGroups: their pending pods would no longer
    be scheduled, and their running pods would be counted in no queue."""
    phases = {phase: numbers[name, phase] for phase in UNFINISHED if numbers[name, phase]}
    if phases:
        listed = ", ".join(f"{count} {phase}" for phase, count in phases.items())
        raise CommandError(
            f"queue {name}",
            f"not deleted: it has unfinished PodGroups ({listed})",
            f"close it and wait until they end: strom queue close {name}; "
            "or delete it with --force",
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


def wide_cells(queue: scheduling.Queue) -> tuple[str, ...]:
    """The further cells of a queue's row, under ``WIDE_HEADERS``."""
    spec = queue.spec
    amounts = (spec.guarantee.resource, spec.deserved, spec.capability, queue.status.allocated)
    return (str(spec.priority), *(_amounts(one, ",") for one in amounts))


def shares(queue: scheduling.Queue) -> Sequence[str]:
    """The queue's capability, deserved and guarantee, as far as they are set."""
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
    """The fields of a queue that admission would reject; the queue was stored without admission."""
    violations = queue.metadata.annotation(keys.VIOLATIONS)
    return [f"{'invalid':<11} {violations}"] if violations else []


def _amounts(amounts: Mapping[str, object] | None, comma: str, equals: str = "=") -> str:
    return comma.join(f"{name}{equals}{amount}" for name, amount in (amounts or {}).items())


def counts_of_queue(counts: Counts, queue: scheduling.Queue) -> Sequence[int]:
    """The number of the queue's PodGroups in each of ``PHASES``."""
    return [counts[queue.metadata.name, phase] for phase in PHASES]


def reported_counts(queue: scheduling.Queue) -> Sequence[int]:
    """The numbers of the queue's PodGroups by phase, from its status."""
    status = queue.status
    return (status.inqueue, status.pending, status.running, status.unknown, status.completed)


def count_pod_groups(client: "Client") -> Counts:
    """All PodGroups by queue and phase; one without a phase is Pending."""
    groups = (client.decode(kinds.POD_GROUPS, raw) for raw in client.pod_groups())
    return Counter((group.spec.queue, group.status.phase or "Pending") for group in groups)
