"""Nodes and topology domains, cached in the session.

REST has no watch of either. A session reuses what it read for ``KEPT``, because pages are rendered
again for each change of a pod."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from stromboli.client import errors
from stromboli.client.operations import calls
from stromboli.console.core import cluster_rows
from stromboli.console.sessions import Domains, Session
from stromboli.shared import network_topology
from stromboli.shared.api import kinds, topology

KEPT = timedelta(seconds=5)


async def nodes(session: Session, now: datetime) -> Sequence[cluster_rows.NodeFacts]:
    """All nodes. Raises ClientError."""
    if session.nodes is not None and now - session.nodes[0] < KEPT:
        return session.nodes[1]
    node_facts: list[cluster_rows.NodeFacts] = []
    token = ""
    while True:
        page = await session.client.send(calls.nodes(limit=calls.PAGE_ITEMS, continue_=token))
        node_facts += [cluster_rows.node_facts(kinds.NODES.decode(item)) for item in page.items]
        token = page.continue_
        if not token:
            session.nodes = (now, node_facts)
            return node_facts


async def domains(
    session: Session, known: Sequence[cluster_rows.NodeFacts], now: datetime
) -> Domains:
    """The topology domains over these nodes; none without the right to read them. The layout is
    computed when a node, a label or a HyperNode has changed, in a thread: patterns and selectors
    are matched with each node. Raises ClientError."""
    kept = session.domains
    if kept is not None and now - kept[0] < KEPT:
        return kept[1]
    hyper_nodes = await _hyper_nodes(session)
    labels = {node.name: node.labels for node in known}
    if kept is not None and (kept[1].hyper_nodes, kept[1].labels) == (hyper_nodes, labels):
        current_domains = kept[1]
    else:
        layout = await asyncio.to_thread(network_topology.layout, hyper_nodes, labels)
        current_domains = Domains(hyper_nodes, labels, layout)
    session.domains = (now, current_domains)
    return current_domains


async def _hyper_nodes(session: Session) -> list[topology.HyperNode]:
    hyper_nodes: list[topology.HyperNode] = []
    token = ""
    while True:
        call = calls.hyper_nodes(limit=calls.PAGE_ITEMS, continue_=token)
        try:
            page = await session.client.send(call)
        except errors.ForbiddenError:
            return []
        hyper_nodes += [kinds.HYPER_NODES.decode(item) for item in page.items]
        token = page.continue_
        if not token:
            return hyper_nodes
