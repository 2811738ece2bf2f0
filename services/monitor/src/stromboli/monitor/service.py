"""The monitor's shell: reads the cluster for all services.

::

    own topics ── apply, as standby and then up to our own start ──▶ a reflector state per kind
                                                   │ resume, else list
    API server ── list, watch ──▶ reflector state ── drafts ──▶ outbox ──▶ snapshot topic
                                                   ╰── sync point ──▶ cluster.sync
    node agents ── HTTP ──▶ reports ── drafts ──▶ outbox ──▶ cluster.topology, .data, .usage,
         │                                                   .podusage
         ╰────── what a node should have ◀── materialize ── scheduling.data
    own topics ── follow ──▶ republish hidden keys; a later monitor ends this term
"""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import timedelta

from stromboli.monitor import crd_check
from stromboli.monitor.agent_receiver import ActiveTerm, AgentReceiver
from stromboli.monitor.competitor_watch import CompetitorWatch
from stromboli.monitor.core.data_reports import DataReports, WantedData
from stromboli.monitor.core.pod_usage_reports import PodUsageReports
from stromboli.monitor.core.reflector_state import ReflectorState
from stromboli.monitor.core.reports import NodeReports
from stromboli.monitor.core.usage_reports import UsageReports
from stromboli.monitor.history import History
from stromboli.monitor.outbox import Outbox
from stromboli.monitor.own_topics import AgentReports, OwnTopicsReader
from stromboli.monitor.reflector import Reflector
from stromboli.monitor.settings import MonitorSettings
from stromboli.shared import leader_election, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import materialization
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.runtime import runtime

OFTEN_S, OFTEN_FOR_S = 0.25, 20.0
"""Interval of the first heartbeats, and how long it applies."""
MAX_NAMED = 5
"""Silent agents that a warning lists by name."""
WHO: Mapping[type[AgentReports], str] = {
    NodeReports: "agents",
    DataReports: "data caches",
    UsageReports: "measured loads",
}
"""Type of reports -> what a warning calls the silent senders."""


async def serve(
    settings: MonitorSettings,
    bus: bus_port.Bus,
    cluster: cluster_port.Cluster,
    health: runtime.Health,
    clock: runtime.Clock,
    agents: AgentReceiver | None = None,
    lease: leader_election.Lease | None = None,
) -> None:
    """Run until cancelled. Ready once every kind is synced or, as standby, once everything that the
    leader published is applied. ``agents``: the endpoint for node agents, open while this monitor
    is the leader. ``lease``: None if there is no other monitor.
    """

    async def term(lead: leader_election.Leadership) -> None:
        await _term(settings, bus, cluster, health, clock, agents, lead)

    await leader_election.serve_in_terms(
        lease or leader_election.SingleReplica(health), term, health
    )


async def _term(
    settings: MonitorSettings,
    bus: bus_port.Bus,
    cluster: cluster_port.Cluster,
    health: runtime.Health,
    clock: runtime.Clock,
    agents: AgentReceiver | None,
    lead: leader_election.Leadership,
) -> None:
    for kind in kinds.WATCHED:
        health.set(kind.plural, "starting")
    reflector_states = [ReflectorState(kind) for kind in kinds.WATCHED]
    silence = timedelta(seconds=settings.agents_silence_s)
    reports, data_reports = NodeReports(silence), DataReports(silence)
    usage = UsageReports(silence)
    of_agents = (reports, data_reports, usage)
    own_reader = OwnTopicsReader(bus, reflector_states, of_agents, health)
    await _stand_by(own_reader, health, lead)
    writer = await runtime.retry_until_available(
        lambda: bus.open_writer("monitor", settings.instance), "log", health
    )
    ends = await own_reader.restore(writer.epoch)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(own_reader.follow())
        tasks.create_task(History(bus, writer, health, clock, ends).keep())
        rivalry = CompetitorWatch(settings.competitor_leases, cluster, writer, health, clock)
        await rivalry.check()  # before any kind is published as synced
        watchers = []
        for state in reflector_states:
            end = ends[state.topic.name]
            state.open(end)
            outbox = Outbox(writer, health, end)
            watcher = Reflector(state, outbox, own_reader, writer, cluster, health, clock)
            watchers.append(watcher)
            tasks.create_task(outbox.run())
            tasks.create_task(watcher.publish_sync_markers())
            tasks.create_task(watcher.read())
        nodes = next(each for each in reflector_states if each.kind is kinds.NODES)
        outboxes = []
        for each in of_agents:
            outbox = Outbox(writer, health, ends[each.topic.name], keeps_newest=True)
            outboxes.append(outbox)
            tasks.create_task(outbox.run())
            each.open(clock())
            tasks.create_task(_tick(settings, each, outbox, nodes, health, clock))
        tasks.create_task(_beat(settings, bus, cluster, health, watchers))
        tasks.create_task(rivalry.run(settings.heartbeat_s))
        tasks.create_task(crd_check.check_definitions(cluster, health))
        if agents is not None:
            wanted, has_read = WantedData(), asyncio.Event()
            tasks.create_task(_read_wanted(bus, wanted, has_read, health))
            await has_read.wait()
            # Its position is not restored: a lost tail of measurements stops nothing.
            pod_usage = Outbox(writer, health, 0)
            tasks.create_task(pod_usage.run())
            pods = next(each for each in reflector_states if each.kind is kinds.PODS)
            active = ActiveTerm(
                put=outboxes[0].put,
                is_there=nodes.may_have,
                reports=reports,
                put_data=outboxes[1].put,
                data=data_reports,
                wanted=wanted,
                put_usage=outboxes[2].put,
                usage=usage,
                append_pod_usage=pod_usage.append,
                pod_usage=PodUsageReports(),
                pod_uid=pods.uid_of,
            )
            with agents.open(active):
                await asyncio.Event().wait()


async def _read_wanted(
    bus: bus_port.Bus, wanted: WantedData, has_read: asyncio.Event, health: runtime.Health
) -> None:
    """Materialize the data that the scheduler wants on each node; ``has_read`` is set at the end
    of the topic. If the topic is created again, the known lists stay until the scheduler publishes
    new ones: a lost list is not an empty one."""
    batches = materialization.materialize(
        bus, [topics.DATA_WANTED], health.warn, "scheduling.data", on_recreated=lambda _: None
    )
    async with contextlib.aclosing(batches):
        async for batch in batches:
            for record in batch.records:
                wanted.apply(record)
            unreadable = sorted(wanted.unreadable.items())[:MAX_NAMED]
            lines = "; ".join(f"{node}: {reason}" for node, reason in unreadable)
            health.warn("wanted data", f"unreadable: {lines}" if lines else None)
            if batch.caught_up:
                has_read.set()


async def _stand_by(
    own_reader: OwnTopicsReader, health: runtime.Health, lead: leader_election.Leadership
) -> None:
    """Apply the leader's records until this monitor becomes the leader."""
    acquired = asyncio.create_task(lead.acquired())
    caught_up = asyncio.Event()

    async def is_ready() -> None:
        await caught_up.wait()
        for kind in kinds.WATCHED if not acquired.done() else ():
            health.set(kind.plural, None)

    standing = asyncio.create_task(own_reader.follow_as_standby(caught_up))
    telling = asyncio.create_task(is_ready())
    try:
        await asyncio.wait([acquired, standing], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (acquired, standing, telling):
            task.cancel()
        await asyncio.wait([acquired, standing, telling])
    if not standing.cancelled():
        standing.result()
    for kind in kinds.WATCHED:
        health.set(kind.plural, "starting")


async def _tick(
    settings: MonitorSettings,
    reports: AgentReports,
    outbox: Outbox,
    nodes: ReflectorState,
    health: runtime.Health,
    clock: runtime.Clock,
) -> None:
    """Publish that agents became silent or nodes were deleted, and warn about silent agents."""
    while True:
        for draft in reports.tick(clock(), nodes.may_have):
            outbox.put(draft)
        silent = reports.silent()
        lines = [f"{node} since {at:%Y-%m-%d %H:%M:%S}Z" for node, at in silent.items()]
        more = f" and {len(lines) - MAX_NAMED} more" if len(lines) > MAX_NAMED else ""
        health.warn(
            WHO[type(reports)], f"silent: {', '.join(lines[:MAX_NAMED])}{more}" if lines else None
        )
        await asyncio.sleep(settings.heartbeat_s)


async def _beat(
    settings: MonitorSettings,
    bus: bus_port.Bus,
    cluster: cluster_port.Cluster,
    health: runtime.Health,
    watchers: list[Reflector],
) -> None:
    """Publish heartbeats while the cluster and the log respond, even if nothing changes. They are
    more frequent at first, because services that start together with the monitor wait for the first
    one.
    """
    loop = asyncio.get_running_loop()
    often_until = loop.time() + OFTEN_FOR_S
    while True:
        is_often = loop.time() < often_until
        await asyncio.sleep(
            min(OFTEN_S, settings.heartbeat_s) if is_often else settings.heartbeat_s
        )
        cluster_answers, log_answers = await asyncio.gather(
            cluster.is_reachable(), bus.is_reachable()
        )
        health.set("cluster", None if cluster_answers else "the API server does not respond")
        health.set("log", None if log_answers else "the log does not respond")
        if cluster_answers and log_answers:
            for watcher in watchers:
                watcher.due.set()
