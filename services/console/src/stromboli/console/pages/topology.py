"""The page of the network topology as racks, and the page of one node with its hardware."""

from typing import Any

from litestar import get
from litestar.exceptions import HTTPException
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from stromboli.cli.render.nodes import node_layout
from stromboli.client import errors
from stromboli.client.operations import calls
from stromboli.console.core import cluster_rows, racks
from stromboli.console.pages import node_lists, watches
from stromboli.console.pages.requests import Console, Page, Web, allowed, gather, query_of
from stromboli.console.sessions import Session

MOST_CHARACTERS = 200


def routes(console: Console) -> list[ControllerRouterHandler]:
    """The page of racks, and the page of a node."""

    async def pods_and_nodes(session: Session) -> tuple[Any, Any]:
        pods, nodes = await gather(
            watches.opened(console, session, watches.pods("")),
            node_lists.nodes(session, console.clock()),
        )
        return pods, nodes

    @get("/topology")
    async def topology(request: Web) -> Page:
        session, query = console.session(request), query_of(request)
        q = query.get("q", "").strip()[:MOST_CHARACTERS]
        within = query.get("within", "")[:MOST_CHARACTERS]
        pods, nodes = await pods_and_nodes(session)
        domains = await node_lists.domains(session, nodes, console.clock())
        rows = cluster_rows.node_rows(nodes, pods.rows.values())
        selected_racks = racks.racks(domains.layout, domains.tier_names, rows, within, q)
        return console.page(
            session,
            "topology.html",
            section="nodes",
            live="/live/nodes",
            racks=selected_racks,
            has_domains=len(domains.layout.names) > 1,
            within=selected_racks.domains[0].name if selected_racks.path else "",
            q=q,
        )

    @get("/nodes/{name:str}")
    async def node(request: Web, name: FromPath[str]) -> Page:
        session = console.session(request)
        pods, nodes = await pods_and_nodes(session)
        facts = next((it for it in nodes if it.name == name), None)
        if facts is None:
            raise HTTPException(f"there is no node {name[:MOST_CHARACTERS]}", status_code=404)
        own = [it for it in pods.rows.values() if it.node == name]
        domains = await node_lists.domains(session, nodes, console.clock())
        hardware = await allowed(_hardware(session, name))
        return console.page(
            session,
            "node.html",
            section="nodes",
            live="/live/nodes",
            row=cluster_rows.node_rows([facts], own)[0],
            path=racks.path_of_node(domains.layout, name),
            layout=node_layout.node_layout(hardware, console.clock())
            if hardware is not None and not isinstance(hardware, errors.ForbiddenError)
            else None,
        )

    return [topology, node]


async def _hardware(session: Session, name: str) -> Any:
    """The hardware of a node; None if no agent reports it."""
    try:
        return await session.client.send(calls.node_topology(name))
    except errors.NotFoundError:
        return None
