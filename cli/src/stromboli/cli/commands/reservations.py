"""``strom reservation``: nodes that are reserved for a period, for some jobs or for maintenance."""

import contextlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stromboli.cli import lazy, options
from stromboli.cli.errors import CommandError, NotFoundError
from stromboli.cli.parameters import parsing, time_options
from stromboli.cli.render import listing, output
from stromboli.client.operations import workload_calls
from stromboli.shared.api import core, kinds, reservation
from stromboli.shared.formats import counts
from stromboli.shared.jobspec import reservations

if TYPE_CHECKING:
    from stromboli.cli.client import Client

HEADERS = ("NAME", "STATE", "START", "END", "NODES", "FOR")
app = typer.Typer(cls=lazy.GetGroup, help="Reserve nodes for users, queues or maintenance.")
Name = Annotated[str, typer.Argument(metavar="RESERVATION", help="The reservation's name.")]
Names = Annotated[
    list[str], typer.Argument(metavar="RESERVATION...", help="Names of reservations.")
]


def _several(what: str) -> Any:
    return typer.Option(
        metavar="NAME", help=f"{what} whose jobs may use the nodes. May be repeated."
    )


@app.command("create")
def create(
    name: Name,
    start: Annotated[
        str,
        typer.Option(
            "--start", metavar="TIME", help="Start: 2026-12-01T08:00:00Z, now, or in 2 hours: +2h."
        ),
    ],
    end: Annotated[str, typer.Option("--end", metavar="TIME", help="End, like --start.")] = "",
    duration: Annotated[
        str, typer.Option("--duration", metavar="DURATION", help="Length instead of --end: 4h.")
    ] = "",
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="NODE", help="A node. May be repeated.")
    ] = None,
    selector: Annotated[
        str, typer.Option("--selector", "-l", metavar="LABELS", help="Nodes with labels: rack=a.")
    ] = "",
    node_count: Annotated[
        int | None,
        typer.Option(
            "--node-count",
            min=1,
            help="Number of nodes, chosen now from all nodes or from those of --selector.",
        ),
    ] = None,
    all_nodes: Annotated[bool, typer.Option("--all-nodes", help="All nodes.")] = False,
    user: Annotated[list[str] | None, _several("A user")] = None,
    group: Annotated[list[str] | None, _several("A group of users")] = None,
    for_namespace: Annotated[list[str] | None, _several("A namespace")] = None,
    queue: Annotated[list[str] | None, _several("A queue")] = None,
    maintenance: Annotated[
        bool, typer.Option("--maintenance", help="No job may use the nodes.")
    ] = False,
    at_start: Annotated[
        str,
        typer.Option(
            metavar="Leave|Evict",
            help="Leave or evict other pods that run at the start. [default: Leave; Evict for "
            "maintenance]",
        ),
    ] = "",
    at_end: Annotated[
        str,
        typer.Option(
            metavar="Leave|Evict",
            help="Leave or evict the reservation's pods that run at its end. [default: Leave]",
        ),
    ] = "",
    lead_time: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="How long before the start the nodes stop taking pods without a time limit. "
            "[default: 168h]",
        ),
    ] = "",
    server: options.Server = None,
) -> None:
    """Reserve nodes for a period.

    Jobs use them with: strom job run --reservation NAME.
    """
    now = datetime.now(UTC)
    spec: dict[str, Any] = {
        "startTime": _time(start, now, "--start").isoformat(),
        "endTime": _time(end, now, "--end").isoformat() if end else "",
        "duration": duration,
        "maintenance": maintenance,
        "users": user or [],
        "groups": group or [],
        "namespaces": for_namespace or [],
        "queues": queue or [],
        "allNodes": all_nodes,
        "nodeNames": node or [],
        "nodeSelector": time_options.labels(selector),
        "atStart": at_start,
        "atEnd": at_end,
        "leadTime": lead_time,
    }
    document = {
        "apiVersion": kinds.ADVANCE_RESERVATIONS.api_version,
        "kind": kinds.ADVANCE_RESERVATIONS.kind,
        "metadata": {"name": name},
        "spec": {key: value for key, value in spec.items() if value},
    }
    with options.client(server) as client:
        _refuse_existing(client, name)
        if node_count:
            _choose_nodes(client, document, node_count)
        (applied,) = client.apply([document])
    result_line = f"{output.title(kinds.ADVANCE_RESERVATIONS, name)} {applied.result}"
    output.show_lines([result_line])


@app.command("list")
def list_all(
    output_format: options.Output = output.Format.TABLE, server: options.Server = None
) -> None:
    """List reservations."""
    reservation_listing = listing.Listing(
        kind=kinds.ADVANCE_RESERVATIONS,
        what="reservations",
        headers=HEADERS,
        row=row,
        is_wanted=lambda _: True,
        has_namespace=False,
        state="STATE",
    )
    with options.client(server) as client:
        raws = client.send(workload_calls.reservations()).items
        listing.show(client, reservation_listing, output_format, raws)


@app.command("get")
def get(
    name: Name,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show a reservation."""
    with options.client(server) as client:
        raw = client.send(workload_calls.reservation(name))
        if not output_format.is_table:
            output.show_objects(output_format, kinds.ADVANCE_RESERVATIONS, [raw])
            return
        advance_reservation = client.decode(kinds.ADVANCE_RESERVATIONS, raw)
    output.show_table(HEADERS, [row(advance_reservation, datetime.now(UTC))])


@app.command("delete")
def delete(names: Names, server: options.Server = None) -> None:
    """Delete reservations: their nodes take all pods again."""
    with options.client(server) as client:

        def remove(name: str) -> str:
            client.send(workload_calls.delete_reservation(name))
            return f"{output.title(kinds.ADVANCE_RESERVATIONS, name)} deleted"

        options.for_each(names, remove)


def row(advance_reservation: reservation.AdvanceReservation, now: datetime) -> tuple[str, ...]:
    """A reservation as a row under ``HEADERS``."""
    spec = advance_reservation.spec
    try:
        period = reservations.period(spec)
    except ValueError:
        return (
            advance_reservation.metadata.name,
            "Invalid",
            "",
            "",
            nodes_text(spec),
            principals_text(spec),
        )
    state = "Ended" if period.end <= now else "Active" if period.start <= now else "Planned"
    times = time_options.short(period.start), time_options.short(period.end)
    return (
        advance_reservation.metadata.name,
        state,
        *times,
        nodes_text(spec),
        principals_text(spec),
    )


def nodes_text(spec: reservation.AdvanceReservationSpec) -> str:
    """The reserved nodes, as a cell of the table."""
    if spec.all_nodes:
        return "all"
    if spec.node_selector:
        return ",".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
    return ",".join(spec.node_names)


def principals_text(spec: reservation.AdvanceReservationSpec) -> str:
    """The users, groups, namespaces and queues that may use the nodes, as a cell of the table."""
    if spec.maintenance:
        return "maintenance"
    named = {
        "user": spec.users,
        "group": spec.groups,
        "namespace": spec.namespaces,
        "queue": spec.queues,
    }
    return " ".join(f"{word}:{name}" for word, names in named.items() for name in names)


def _refuse_existing(client: "Client", name: str) -> None:
    """Raise CommandError if there is a reservation with this name: apply would merge into it, so
    that its old users or nodes remained."""
    with contextlib.suppress(NotFoundError):
        client.send(workload_calls.reservation(name))
        raise CommandError(
            f"reservation {name}",
            "it exists already",
            f"delete it first: strom reservation delete {name}; or change it with a manifest: "
            "strom apply -f FILE",
        )


def _choose_nodes(client: "Client", document: dict[str, Any], count: int) -> None:
    """Replace the selector of a reservation by the names of nodes. Raises CommandError."""
    spec = document["spec"]
    wanted = spec.pop("nodeSelector", {})
    if spec.get("nodeNames") or spec.get("allNodes"):
        raise typer.BadParameter(
            "it cannot be combined with --node or --all-nodes", param_hint="--node-count"
        )
    there = [client.decode(kinds.NODES, raw) for raw in client.nodes()]
    decode = kinds.ADVANCE_RESERVATIONS
    raws = client.send(workload_calls.reservations()).items
    others = [
        client.decode(decode, raw)
        for raw in raws
        if kinds.name_of(raw) != document["metadata"]["name"]
    ]
    free = free_nodes(_period(spec), wanted, there, others)
    if len(free) < count:
        raise CommandError(
            f"reservation {document['metadata']['name']}",
            f"it needs {counts.counted(count, 'node')}; available in this period: {len(free)}",
            "choose another period or fewer nodes: strom reservation list",
        )
    spec["nodeNames"] = free[:count]


def free_nodes(
    period: reservations.Period,
    labels: dict[str, str],
    nodes: Iterable[core.Node],
    others: Sequence[reservation.AdvanceReservation],
) -> list[str]:
    """The schedulable nodes with these labels that no other reservation reserves in the period, by
    name."""
    advance_reservation_specs = [each.spec for each in others if _overlaps(each.spec, period)]
    return sorted(
        each.metadata.name
        for each in nodes
        if not each.spec.unschedulable
        and labels.items() <= (each.metadata.labels or {}).items()
        and not any(
            reservations.covers(spec, each.metadata.name, each.metadata.labels)
            for spec in advance_reservation_specs
        )
    )


def _overlaps(spec: reservation.AdvanceReservationSpec, period: reservations.Period) -> bool:
    try:
        return reservations.period(spec).overlaps(period)
    except ValueError:
        return False


def _period(spec: dict[str, Any]) -> reservations.Period:
    end = datetime.fromisoformat(spec["endTime"]) if "endTime" in spec else None
    advance_reservation_spec = reservation.AdvanceReservationSpec(
        start_time=datetime.fromisoformat(spec["startTime"]),
        end_time=end,
        duration=spec.get("duration", ""),
    )
    try:
        return reservations.period(advance_reservation_spec)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--end") from None


def _time(text: str, now: datetime, option: str) -> datetime:
    """``now``, ``+2h``, or a time, UTC if it has no zone; in whole seconds. Raises BadParameter."""
    if text == "now":
        return now.replace(microsecond=0)
    try:
        if text.startswith("+"):
            ahead = timedelta(seconds=parsing.duration_s(text[1:]))
            return (now + ahead).replace(microsecond=0)
        parsed_time = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        expected = "write 2026-12-01T08:00:00Z, now or +2h"
        raise typer.BadParameter(f"{text!r} is not a time; {expected}", param_hint=option) from None
    return parsed_time if parsed_time.tzinfo is not None else parsed_time.replace(tzinfo=UTC)
