"""The topology of the network as racks: domains, their nodes, and who holds what. Pure.

A domain is a HyperNode. Nodes are shown in their lowest domain, those in no HyperNode in the
cluster itself; sums of a domain include those of the domains in it.
"""

from collections.abc import Mapping, Sequence

import msgspec

from stromboli.console.core.cluster_rows import Holder, NodeRow
from stromboli.shared import network_topology
from stromboli.shared.network_topology import ROOT_INDEX

CLUSTER = "cluster"
"""The name of the root in URLs and on pages."""
MOST_CELLS = 500
"""Nodes on one page; a domain's own page has the others."""
MOST_SLOTS = 16
"""Maximum GPUs of a node that are drawn one by one; the text always has the numbers."""
MOST_HOLDERS = 4


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A node in its rack. ``slots``: for each GPU whether it is held (``held``), held in part
    (``part``) or free (``free``); empty if they are too many to draw. ``is_found``: the search
    selects it. GPUs are in thousandths."""

    name: str
    state: str
    problems: int
    gpu_type: str
    gpus: int
    free_gpus: int
    slots: tuple[str, ...]
    pods: int
    holders: tuple[Holder, ...]
    more_holders: int
    is_found: bool


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    """A topology domain. ``depth``: 0 for the selected one. ``idle``: nodes without pods.
    ``largest``: the most free GPUs on one node. GPUs are in thousandths."""

    name: str
    tier: str
    depth: int
    nodes: int
    ready: int
    idle: int
    gpus: int
    free_gpus: int
    largest: int
    cells: tuple[Cell, ...]
    more_cells: int


class Racks(msgspec.Struct, frozen=True, kw_only=True):
    """Domains in preorder, from the selected one. ``path``: the domains above that one, the
    cluster first. ``found``: nodes that the search selects. ``complaints``: errors of HyperNodes.
    """

    domains: tuple[Domain, ...]
    path: tuple[str, ...]
    found: int
    complaints: tuple[str, ...]


class _Sums(msgspec.Struct):
    nodes: int = 0
    ready: int = 0
    idle: int = 0
    gpus: int = 0
    free_gpus: int = 0
    largest: int = 0


def racks(
    domain_layout: network_topology.Layout,
    tier_names: Mapping[str, str],
    nodes: Sequence[NodeRow],
    within: str = "",
    q: str = "",
) -> Racks:
    """The domains of a layout of these nodes. ``within``: the selected domain; the whole cluster if
    no such domain exists. ``q``: marks nodes by their name, their GPU type, and the jobs and
    queues on them. O(nodes x depth + domains)."""
    sums = [_Sums() for _ in domain_layout.names]
    homes: dict[int, list[NodeRow]] = {}
    for node in nodes:
        at = domain_layout.homes.get(node.name, ROOT_INDEX)
        homes.setdefault(at, []).append(node)
        _add(sums[at], node)
    for at in range(len(domain_layout.names) - 1, ROOT_INDEX, -1):  # children follow their parents
        _merge(sums[domain_layout.parents[at]], sums[at])
    domain_indexes = _shown(domain_layout, within)
    top, left = domain_indexes[0], MOST_CELLS
    depths = {top: 0}
    domains, count = [], 0
    for at in domain_indexes:
        depth = depths.setdefault(at, depths.get(domain_layout.parents[at], 0) + 1)
        own = homes.get(at, [])
        matching = [_matches(node, q.lower()) for node in own]
        count += sum(matching)
        if at == ROOT_INDEX and len(domain_layout.names) > 1 and not own and not sums[at].nodes:
            continue
        kept = own[:left]
        left -= len(kept)
        cells = tuple(_cell(node, is_found) for node, is_found in zip(kept, matching, strict=False))
        domains.append(
            _domain(domain_layout, at, tier_names, depth, sums[at], cells, len(own) - len(kept))
        )
    return Racks(
        domains=tuple(domains),
        path=_path(domain_layout, top),
        found=count,
        complaints=tuple(domain_layout.complaints),
    )


def path_of_node(domain_layout: network_topology.Layout, node: str) -> tuple[str, ...]:
    """The domains that contain a node, the cluster first."""
    at = domain_layout.homes.get(node, ROOT_INDEX)
    return (*_path(domain_layout, at), CLUSTER if at == ROOT_INDEX else domain_layout.names[at])


def _shown(domain_layout: network_topology.Layout, within: str) -> list[int]:
    """The indexes of the domain ``within`` and of all domains below it."""
    top = ROOT_INDEX
    if within and within in domain_layout.names[1:]:
        top = domain_layout.names.index(within)
    inside = {top}
    for at in range(top + 1, len(domain_layout.names)):
        if domain_layout.parents[at] in inside:
            inside.add(at)
    return sorted(inside)


def _path(domain_layout: network_topology.Layout, at: int) -> tuple[str, ...]:
    path: list[str] = []
    while at != ROOT_INDEX:
        at = domain_layout.parents[at]
        path.append(CLUSTER if at == ROOT_INDEX else domain_layout.names[at])
    return tuple(reversed(path))


def _domain(
    domain_layout: network_topology.Layout,
    at: int,
    tier_names: Mapping[str, str],
    depth: int,
    sums: _Sums,
    cells: tuple[Cell, ...],
    more: int,
) -> Domain:
    name = CLUSTER if at == ROOT_INDEX else domain_layout.names[at]
    tier = "" if at == ROOT_INDEX else f"tier {domain_layout.tiers[at]}"
    if tier and (named := tier_names.get(name)):
        tier += f", {named}"
    return Domain(
        name=name,
        tier=tier,
        depth=depth,
        cells=cells,
        more_cells=more,
        **msgspec.structs.asdict(sums),
    )


def _add(to: _Sums, node: NodeRow) -> None:
    to.nodes += 1
    to.ready += node.state == "Ready"
    to.idle += not node.pods
    to.gpus += node.all_gpus
    to.free_gpus += max(0, node.free_gpus)
    to.largest = max(to.largest, node.free_gpus)


def _merge(to: _Sums, inner: _Sums) -> None:
    to.nodes += inner.nodes
    to.ready += inner.ready
    to.idle += inner.idle
    to.gpus += inner.gpus
    to.free_gpus += inner.free_gpus
    to.largest = max(to.largest, inner.largest)


def _matches(node: NodeRow, q: str) -> bool:
    if not q:
        return False
    holder_texts = (f"{it.namespace}/{it.name} {it.queue}" for it in node.holders)
    return any(q in text.lower() for text in (node.name, node.gpu_type, *holder_texts))


def _cell(node: NodeRow, is_found: bool) -> Cell:
    return Cell(
        name=node.name,
        state=node.state,
        problems=len(node.problems),
        gpu_type=node.gpu_type,
        gpus=node.all_gpus,
        free_gpus=max(0, node.free_gpus),
        slots=_slots(node),
        pods=node.pods,
        holders=node.holders[:MOST_HOLDERS],
        more_holders=max(0, len(node.holders) - MOST_HOLDERS),
        is_found=is_found,
    )


def _slots(node: NodeRow) -> tuple[str, ...]:
    """GPUs as full, partly held and free ones: which of them are held is on the node's page."""
    count = -(-node.all_gpus // 1000)
    if count > MOST_SLOTS:
        return ()
    used_gpus = node.all_gpus - max(0, node.free_gpus)
    full, rest = divmod(used_gpus, 1000)
    slots = ["held"] * full + ["part"] * (rest > 0)
    return tuple(slots[:count] + ["free"] * (count - len(slots)))
