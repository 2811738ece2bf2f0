"""``strom topology``: the tree of HyperNodes with the free resources of each domain.

``domain_tree`` is pure.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.render import explanation_view, output, usage
from stromboli.shared import network_topology
from stromboli.shared.formats import counts, units
from stromboli.shared.formats.units import Amounts
from stromboli.shared.jobspec import quota

if TYPE_CHECKING:
    from rich.tree import Tree

CLUSTER = "cluster"
"""The name of the root domain."""


class Domain(msgspec.Struct, rename="camel"):
    """A topology domain, or a node (tier -1).

    ``idle_nodes`` counts nodes without requests for cpu, memory or GPUs. Amounts are in the
    resources' units; ``free`` is never below 0.
    """

    name: str
    tier: int
    tier_name: str = ""
    nodes: int = 0
    idle_nodes: int = 0
    free: Amounts = {}
    total: Amounts = {}
    inside: list["Domain"] = []

    def take(self, requests: Amounts, has: Amounts) -> None:
        """Add a node with its requested and its allocatable amounts to the domain."""
        self.nodes += 1
        self.idle_nodes += not any(requests.get(each, 0) for each in usage.RESOURCES)
        self.total = units.add(self.total, has)
        self.free = units.add(self.free, _free_amounts(has, requests))


WIDEST = 10_000
"""Width of the tree in columns; a narrower terminal wraps its lines, so that names can still be
copied."""


def topology(
    nodes: Annotated[bool, typer.Option("--nodes", help="Also show each node.")] = False,
    output_format: options.DocumentFormat = output.DocumentFormat.TABLE,
    server: options.Server = None,
) -> None:
    """Show HyperNodes and the free resources of each.

    Free is allocatable minus the requests of the pods on the nodes.
    """
    with options.client(server) as client:
        objects = usage.read(client.scheduling_input().items)
    root, complaints = domain_tree(objects, with_nodes=nodes)
    if output_format is output.DocumentFormat.TABLE:
        from rich.console import Console

        Console(width=WIDEST, highlight=False).print(_tree(root), soft_wrap=True)
    else:
        output.show_document(output_format, msgspec.to_builtins(root))
    for complaint in complaints:
        output.show_note(f"note: {complaint}")


def domain_tree(
    objects: usage.ClusterObjects, *, with_nodes: bool = False
) -> tuple[Domain, list[str]]:
    """The root domain with all domains inside, and warnings about invalid HyperNodes."""
    labels = {each.metadata.name: each.metadata.labels or {} for each in objects.nodes}
    domain_layout = network_topology.layout(objects.hyper_nodes, labels)
    tier_names = {each.metadata.name: each.spec.tier_name for each in objects.hyper_nodes}
    domains = [
        Domain(name, tier, tier_names.get(name, ""))
        for name, tier in zip(domain_layout.names, domain_layout.tiers, strict=True)
    ]
    domains[network_topology.ROOT_INDEX].name = CLUSTER
    for at, parent in enumerate(domain_layout.parents):
        if at != network_topology.ROOT_INDEX:
            domains[parent].inside.append(domains[at])
    allocated = _allocated(objects)
    for node in sorted(objects.nodes, key=lambda each: each.metadata.name):
        name, has = node.metadata.name, units.amounts(node.status.allocatable or {})
        if with_nodes:
            own = Domain(name, -1)
            own.take(allocated.get(name, {}), has)
            domains[domain_layout.homes[name]].inside.append(own)
        for at in _ancestors(domain_layout, domain_layout.homes[name]):
            domains[at].take(allocated.get(name, {}), has)
    return domains[network_topology.ROOT_INDEX], [
        *domain_layout.complaints,
        *_nodes_without_domain(objects, domain_layout),
    ]


def _nodes_without_domain(
    objects: usage.ClusterObjects, domain_layout: network_topology.Layout
) -> Iterator[str]:
    """A warning about nodes in no HyperNode, if there are HyperNodes."""
    outside = sorted(
        name for name, at in domain_layout.homes.items() if at == network_topology.ROOT_INDEX
    )
    if objects.hyper_nodes and outside:
        named = ", ".join(outside[: network_topology.NODES_BY_NAME])
        more = len(outside) - network_topology.NODES_BY_NAME
        listed = f"{named} and {more} more" if more > 0 else named
        why = "no HyperNode contains these nodes, so no job with a topology constraint uses them"
        yield f"{why}: {listed}"


def _ancestors(domain_layout: network_topology.Layout, at: int) -> Iterator[int]:
    while at != network_topology.ROOT_INDEX:
        yield at
        at = domain_layout.parents[at]
    yield network_topology.ROOT_INDEX


def _allocated(objects: usage.ClusterObjects) -> dict[str, Amounts]:
    allocated: dict[str, Amounts] = {}
    for pod in usage.active_pods(objects):
        node = pod.spec.node_name
        if node:
            allocated[node] = units.add(allocated.get(node, {}), quota.requests(pod.spec))
    return allocated


def _free_amounts(has: Amounts, allocated: Amounts) -> Amounts:
    return {name: max(amount - allocated.get(name, 0), 0) for name, amount in has.items()}


def line(place: Domain) -> str:
    """A domain as a line of the tree."""
    if place.tier < 0:
        return f"{place.name}   {_free(place)}"
    tier = f"tier {place.tier}" + (f" {place.tier_name}" if place.tier_name else "")
    nodes = f"{counts.counted(place.nodes, 'node')}, {place.idle_nodes} idle"
    return f"{place.name}   {tier}   {nodes}   {_free(place)}"


def _free(place: Domain) -> str:
    amounts = [
        f"{explanation_view.format_amount(name, place.free.get(name, 0))} of "
        f"{explanation_view.format_amount(name, place.total[name])} {usage.label(name)}"
        for name in usage.RESOURCES
        if place.total.get(name)
    ]
    return f"free: {', '.join(amounts)}" if amounts else "free: none"


def _tree(root: Domain) -> "Tree":
    from rich.text import Text
    from rich.tree import Tree

    def add(to: "Tree", place: Domain) -> None:
        branch = to.add(Text(line(place)))
        for each in place.inside:
            add(branch, each)

    drawn = Tree(Text(line(root)))
    for each in root.inside:
        add(drawn, each)
    return drawn
