"""Flows and crons: lists, a flow as a graph, a cron with its times."""

from litestar import get
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from stromboli.client import errors
from stromboli.client.operations import workload_calls
from stromboli.console import templating
from stromboli.console.core import flow_graph, workload_rows
from stromboli.console.pages import watches
from stromboli.console.pages.requests import (
    Console,
    Page,
    Web,
    allowed,
    events_of,
    gather,
    scoped_query_of,
)
from stromboli.shared.api import kinds


def routes(console: Console) -> list[ControllerRouterHandler]:
    """The pages of flows and crons. Each list needs its own right."""

    @get("/flows")
    async def flows(request: Web) -> Page:
        session = console.session(request)
        filters = workload_rows.read_filters(scoped_query_of(request, session))
        job_flows, crons = await gather(
            allowed(watches.opened(console, session, watches.flows(filters.scope))),
            allowed(watches.opened(console, session, watches.crons(filters.scope))),
        )
        may_flows = not isinstance(job_flows, errors.ForbiddenError)
        may_crons = not isinstance(crons, errors.ForbiddenError)
        if not may_flows and not may_crons:
            return console.choose_namespace(session, "flows", filters.scope)
        now = console.clock()
        scoped = workload_rows.WorkloadFilters(namespace=filters.namespace)
        return console.page(
            session,
            "flows.html",
            section="flows",
            live="/live/flows" + templating.query(scoped),
            filters=filters,
            flows=workload_rows.flow_rows(job_flows.rows.values(), filters.q)
            if may_flows
            else None,
            crons=workload_rows.cron_rows(crons.rows.values(), filters.q, now)
            if may_crons
            else None,
            most=workload_rows.MOST_ROWS,
        )

    @get("/flows/{namespace:str}/{name:str}")
    async def one_flow(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Page:
        session = console.session(request)
        client = session.client
        raw, events = await gather(
            client.send(workload_calls.workload(kinds.JOB_FLOWS, namespace, name)),
            allowed(client.send(workload_calls.workload_events(kinds.JOB_FLOWS, namespace, name))),
        )
        flow = kinds.JOB_FLOWS.decode(raw)
        steps = flow_graph.steps(flow, console.clock())
        return console.page(
            session,
            "flow.html",
            section="flows",
            live=_live(namespace),
            flow=flow,
            phase=flow.status.state.phase or "Pending",
            steps=steps,
            drawing=flow_graph.draw(steps),
            box=(flow_graph.WIDTH, flow_graph.HEIGHT),
            events=events_of(events),
        )

    @get("/crons/{namespace:str}/{name:str}")
    async def one_cron(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Page:
        session, now = console.session(request), console.clock()
        client = session.client
        raw, events = await gather(
            client.send(workload_calls.workload(kinds.CRON_JOBS, namespace, name)),
            allowed(client.send(workload_calls.workload_events(kinds.CRON_JOBS, namespace, name))),
        )
        cron = kinds.CRON_JOBS.decode(raw)
        return console.page(
            session,
            "cron.html",
            section="flows",
            live=_live(namespace),
            cron=cron,
            row=workload_rows.cron_row(cron, now),
            times=workload_rows.next_times(cron, now),
            events=events_of(events),
        )

    return [flows, one_flow, one_cron]


def _live(namespace: str) -> str:
    return "/live/flows" + templating.query(workload_rows.WorkloadFilters(namespace=namespace))
