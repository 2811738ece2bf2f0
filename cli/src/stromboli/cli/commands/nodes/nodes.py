"""``strom node``: nodes with their status, their hardware, and their pods."""

import contextlib
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
import typer

from stromboli.cli import lazy, options
from stromboli.cli.commands.nodes import node_history, node_maintenance
from stromboli.cli.errors import CommandError, NotFoundError
from stromboli.cli.parameters import selectors
from stromboli.cli.render import listing, output, usage
from stromboli.cli.render.nodes import node_health, node_layout
from stromboli.client.operations import calls, node_calls
from stromboli.shared.api import coordination, core, kinds
from stromboli.shared.messages.node_topology import TopologyObserved
from stromboli.shared.messages.node_usage import UsageObserved

if TYPE_CHECKING:
    from stromboli.cli.client import Client


class NodeGroup(lazy.Group):
    """Commands about nodes."""

    aliases: ClassVar[dict[str, str]] = {"view": "get", "describe": "get"}


app = typer.Typer(cls=NodeGroup, help="Inspect nodes and their devices.")
NARROWEST = 100
"""Minimum width of a drawing in columns; a narrower terminal wraps its lines."""
NO_REPORT = "no node agent has reported its hardware"
INSTALL = "install the node agent: docs/node-agent.md"


class DrawingFormat(StrEnum):
    """Values of ``--output`` for a drawing."""

    TEXT = "text"
    SVG = "svg"
    JSON = "json"
    YAML = "yaml"


@app.callback()
def _group() -> None:
    """Inspect nodes and their devices."""


@app.command("list")
def list_nodes(
    selector: options.Selector = "",
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """List nodes: status, lease, allocatable and free resources.

    LEASE is the time since the node's kubelet renewed its lease, which it does every 10 s. FREE is
    what no pod requests; it is empty without the right to list the pods of all namespaces.
    """
    wanted = options.selector(selector)
    is_wide = output_format is output.Format.WIDE
    with options.client(server) as client:
        leases = _leases(client) if output_format.is_table else {}
        uses = _uses(client) if output_format.is_table else None

        def cells(node: core.Node, now: datetime) -> tuple[str, ...]:
            name = node.metadata.name
            requested = None if uses is None else uses.get(name, usage.PodUsage()).held
            columns = node_health.row(node, leases.get(name), now, requested)
            return columns + (node_health.wide_cells(node) if is_wide else ())

        node_listing = listing.Listing(
            kind=kinds.NODES,
            what="nodes",
            headers=node_health.HEADERS + (node_health.WIDE_HEADERS if is_wide else ()),
            row=cells,
            is_wanted=lambda node: selectors.matches(wanted, node.metadata.labels),
            has_namespace=False,
            state="STATUS",
        )
        listing.show(client, node_listing, output_format, client.nodes())


def _uses(client: "Client") -> dict[str, usage.PodUsage] | None:
    """Node -> the requests of its pods; None where the user may not list all pods. O(pods)."""
    try:
        pods = map(kinds.PODS.decode, client.all_pods(None))
    except CommandError:
        return None
    return usage.by_node(filter(usage.is_active, pods))


def _leases(client: "Client") -> dict[str, coordination.Lease]:
    """Node -> its lease; empty where the server cannot read leases."""
    try:
        raws = client.send(calls.node_leases()).items
    except CommandError:
        return {}
    leases = map(kinds.LEASES.decode, raws)
    return {lease.metadata.name: lease for lease in leases}


@app.command("get")
def get(
    node: node_maintenance.NodeName,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show a node: status, hardware, and the pods on it.

    The hardware is shown as in strom node topology.
    """
    with options.client(server) as client:
        raw = client.send(calls.node(node))
        if not output_format.is_table:
            output.show_objects(output_format, kinds.NODES, [raw])
            return
        _show_status(client, client.decode(kinds.NODES, raw))
        try:
            observed_topology = client.node_topology(node)
        except NotFoundError:
            output.show_note(f"{NO_REPORT[0].upper()}{NO_REPORT[1:]}; {INSTALL}.")
            return
    output.show_lines([""])
    _draw(observed_topology)


@app.command("topology")
def topology(
    node: node_maintenance.NodeName,
    output_format: Annotated[
        DrawingFormat, typer.Option("--output", "-o", help="Output format; svg is an image.")
    ] = DrawingFormat.TEXT,
    server: options.Server = None,
) -> None:
    """Show a node's NUMA nodes, CPUs, GPUs and network cards.

    The data is from the node agent (docs/node-agent.md). Each group of letters is a CPU core, each
    letter a thread; the letter names the pod that holds it exclusively.
    """
    with options.client(server) as client:
        try:
            observed_topology = client.node_topology(node)
        except NotFoundError:
            client.send(calls.node(node))  # reports NotFound for a node that does not exist
            raise CommandError(f"node {node}", NO_REPORT, INSTALL) from None
    if output_format in (DrawingFormat.JSON, DrawingFormat.YAML):
        output.show_document(
            output.DocumentFormat(output_format.value), msgspec.to_builtins(observed_topology)
        )
    elif output_format is DrawingFormat.SVG:
        from stromboli.cli.render.nodes import node_text

        output.show_lines([node_text.render_svg(_layout(observed_topology))])
    else:
        _draw(observed_topology)


def _layout(observed_topology: TopologyObserved) -> node_layout.NodeLayout:
    return node_layout.node_layout(observed_topology, datetime.now(UTC))


def _draw(observed_topology: TopologyObserved) -> None:
    from rich.console import Console

    from stromboli.cli.render.nodes import node_text

    console = Console(highlight=False)
    console.width = max(console.width, NARROWEST)
    console.print(node_text.render_text(_layout(observed_topology)))


def _show_status(client: "Client", node: core.Node) -> None:
    lease: coordination.Lease | None = None
    with contextlib.suppress(CommandError):
        lease = kinds.LEASES.decode(client.send(calls.node_lease(node.metadata.name)))
    now = datetime.now(UTC)
    observed: UsageObserved | None = None
    with contextlib.suppress(CommandError):  # no report, or a server without this route
        observed = client.send(node_calls.usage(node.metadata.name))
    output.show_lines(node_health.facts(node, lease, now, observed))
    if node.status.conditions:
        output.show_lines([""])
        output.show_table(node_health.CONDITION_HEADERS, node_health.conditions(node, now))
    try:
        pods = client.send(node_calls.pods(node.metadata.name)).items
    except CommandError as error:  # without the right to list the pods of all namespaces
        output.show_note(f"The node's pods are not shown: {error.why}.")
        return
    if rows := node_health.pods(pods, now):
        output.show_lines([""])
        output.show_table(node_health.POD_HEADERS, rows)


app.command("history")(node_history.node_history)
app.command("cordon")(node_maintenance.cordon)
app.command("uncordon")(node_maintenance.uncordon)
app.command("drain")(node_maintenance.drain)
