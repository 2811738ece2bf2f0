"""Overview, queues and nodes."""

from typing import Any

from litestar import get
from litestar.exceptions import HTTPException
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from stromboli.client import errors
from stromboli.client.operations import accounting_calls
from stromboli.console.core import cluster_rows, job_rows, queue_history, queue_trees
from stromboli.console.pages import node_lists, past, watches
from stromboli.console.pages.requests import Console, Page, Web, allowed, gather, query_of
from stromboli.console.sessions import Session

MOST_CHARACTERS = 200
MOST_REASONS = 8
MOST_OF_OVERVIEW = 10
"""Holders of GPUs on the overview."""
MOST_NODES = 200
"""Nodes on one page; the search finds the others."""


def routes(console: Console) -> list[ControllerRouterHandler]:
    """The pages about the whole cluster. Each shows what the viewer may read."""

    async def lists(session: Session, *wanted: Any) -> list[Any]:
        return await gather(*(allowed(watches.opened(console, session, it)) for it in wanted))

    @get("/")
    async def overview(request: Web) -> Page:
        session = console.session(request)
        scope = session.namespace
        (jobs, groups, queues, pods), nodes = await gather(
            lists(session, *watches.of_overview(scope)),
            allowed(node_lists.nodes(session, console.clock())),
        )
        counts = None
        if (listed_rows := _rows(jobs)) is not None:
            counts = job_rows.count(listed_rows)
        group_rows = _rows(groups)
        tree = None
        if (listed_rows := _rows(queues)) is not None:
            entries = (entry.queue for entry in listed_rows)
            tree = cluster_rows.queue_rows(entries, None if scope else group_rows)
        totals = None
        if (pod_rows := _rows(pods)) is not None and not isinstance(nodes, Exception) and not scope:
            totals = cluster_rows.totals(nodes, pod_rows)
        reasons = None
        if group_rows is not None:
            reasons = cluster_rows.pending_by_reason(group_rows)[:MOST_REASONS]
        return console.page(
            session,
            "overview.html",
            section="overview",
            live="/live/overview",
            scope=scope,
            counts=counts,
            totals=totals,
            reasons=reasons,
            queues=tree,
            holders=None
            if pod_rows is None
            else cluster_rows.gpu_holders(pod_rows, MOST_OF_OVERVIEW),
        )

    @get("/queues")
    async def queues(request: Web) -> Page:
        session = console.session(request)
        entries, groups = await lists(session, watches.queues(), watches.groups(""))
        if isinstance(entries, errors.ForbiddenError):
            raise entries
        tree = cluster_rows.queue_rows((it.queue for it in entries.rows.values()), _rows(groups))
        return console.page(
            session, "queues.html", section="queues", live="/live/queues", queues=tree
        )

    @get("/queues/{name:str}")
    async def queue(request: Web, name: FromPath[str]) -> Page:
        session = console.session(request)
        entries, groups = await lists(session, watches.queues(), watches.groups(""))
        if isinstance(entries, errors.ForbiddenError):
            raise entries
        known = {it.key: it.queue for it in entries.rows.values()}
        if name not in known:
            raise HTTPException(f"there is no queue {name[:MOST_CHARACTERS]}", status_code=404)
        tree = {it.name: it for it in cluster_rows.queue_rows(known.values(), _rows(groups))}
        now = console.clock()
        report, problem = await past.read(
            session.client.send(accounting_calls.usage(queue_history.query(now)))
        )
        is_readable = report is not None and not isinstance(report, errors.ForbiddenError)
        return console.page(
            session,
            "queue.html",
            section="queues",
            live="/live/queues",
            row=tree[name],
            spec=known[name].spec,
            path=[*reversed(list(queue_trees.ancestors(known, name)))][:-1],
            children=[it for it in tree.values() if queue_trees.parent(known, it.name) == name],
            history=queue_history.history(known, name, report, now) if is_readable else None,
            problem=problem,
        )

    @get("/nodes")
    async def nodes(request: Web) -> Page:
        session, query = console.session(request), query_of(request)
        node_facts, (pods,) = await gather(
            node_lists.nodes(session, console.clock()), lists(session, watches.pods(""))
        )
        if isinstance(pods, errors.ForbiddenError):
            raise pods
        rows = cluster_rows.node_rows(node_facts, pods.rows.values())
        q, only = query.get("q", "").strip()[:200], query.get("show", "")
        node_rows = [
            row
            for row in rows
            if q.lower() in row.name.lower()
            and (only != "gpus" or row.has_gpus)
            and (only != "free" or row.free_gpus > 0)
            and (only != "problems" or row.state != "Ready" or row.problems)
        ]
        return console.page(
            session,
            "nodes.html",
            section="nodes",
            live="/live/nodes",
            nodes=node_rows[:MOST_NODES],
            matching=len(node_rows),
            total=len(rows),
            has_gpus=any(row.has_gpus for row in rows),
            q=q,
            show=only,
            holders=cluster_rows.gpu_holders(pods.rows.values()),
        )

    return [overview, queues, queue, nodes]


def _rows(listing: Any) -> list[Any] | None:
    """The rows of a list; None without the right to it."""
    return None if isinstance(listing, errors.ForbiddenError) else list(listing.rows.values())
