"""The monitor's shell: the only reader of the cluster.

::

    own topics ── fold to our own beginning ──▶ a picture per kind
                                                   │ resume, else list
    API server ── list, watch ──▶ picture ── drafts ──▶ outbox ──▶ snapshot topic
                                                   ╰── mark ──▶ cluster.sync
    nodes' agents ── HTTP ──▶ reports ── drafts ──▶ outbox ──▶ cluster.topology
    own topics ── follow ──▶ what others hide is said again; a later monitor ends this one
"""

import asyncio
import contextlib
from datetime import timedelta

from stromboli.monitor.agents import Agents
from stromboli.monitor.core.picture import Picture
from stromboli.monitor.core.reports import Reports
from stromboli.monitor.outbox import Outbox
from stromboli.monitor.own_log import OWN, OwnLog
from stromboli.monitor.settings import MonitorSettings
from stromboli.monitor.watcher import Watcher
from stromboli.shared import runtime
from stromboli.shared.api import kinds
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port

TOLD = 5
"""Silent agents that a warning names."""


async def serve(
    settings: MonitorSettings,
    bus: bus_port.Bus,
    cluster: cluster_port.Cluster,
    health: runtime.Health,
    clock: runtime.Clock,
    agents: Agents | None = None,
) -> None:
    """Run until cancelled. Ready once every kind is synced. ``agents``: the door for nodes' agents,
    which is opened once the log is.

    Raises, in an exception group, ReplacedError when a later monitor has opened and LogLostError
    when the log lost records: both are for a process that begins again.
    """
    for kind in kinds.WATCHED:
        health.set(kind.plural, "starting")
    writer = await runtime.persist(
        lambda: bus.open_writer("monitor", settings.instance), "log", health
    )
    pictures = [Picture(kind) for kind in kinds.WATCHED]
    silence = timedelta(seconds=settings.agents_silence_s)
    reports = Reports(silence) if agents is None else agents.reports
    async with contextlib.aclosing(bus.fold(OWN)) as fold:
        own_log = OwnLog(fold, writer.epoch, pictures, reports)
        ends = await own_log.fold()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(own_log.follow())
            watchers = []
            for picture in pictures:
                end = ends[picture.topic.name]
                picture.open(end)
                outbox = Outbox(writer, health, end)
                watcher = Watcher(picture, outbox, own_log, writer, cluster, health, clock)
                watchers.append(watcher)
                tasks.create_task(outbox.run())
                tasks.create_task(watcher.vouch())
                tasks.create_task(watcher.read())
            nodes = next(each for each in pictures if each.kind is kinds.NODES)
            outbox = Outbox(writer, health, ends[reports.topic.name])
            tasks.create_task(outbox.run())
            reports.open(clock())
            if agents is not None:
                agents.open(outbox.put, nodes.may_have)
            tasks.create_task(_tick(settings, reports, outbox, nodes, health, clock))
            tasks.create_task(_beat(settings, bus, cluster, health, watchers))


async def _tick(
    settings: MonitorSettings,
    reports: Reports,
    outbox: Outbox,
    nodes: Picture,
    health: runtime.Health,
    clock: runtime.Clock,
) -> None:
    """Notice agents that fall silent and nodes that are gone."""
    while True:
        for draft in reports.tick(clock(), nodes.may_have):
            outbox.put(draft)
        silent = reports.silent()
        told = [f"{node} since {at:%Y-%m-%d %H:%M:%S}Z" for node, at in silent.items()]
        more = f" and {len(told) - TOLD} more" if len(told) > TOLD else ""
        health.warn("agents", f"silent: {', '.join(told[:TOLD])}{more}" if told else None)
        await asyncio.sleep(settings.beat_s)


async def _beat(
    settings: MonitorSettings,
    bus: bus_port.Bus,
    cluster: cluster_port.Cluster,
    health: runtime.Health,
    watchers: list[Watcher],
) -> None:
    """Signs of life, also of a cluster where nothing happens: while it and the log answer."""
    while True:
        await asyncio.sleep(settings.beat_s)
        cluster_answers, log_answers = await asyncio.gather(
            cluster.is_reachable(), bus.is_reachable()
        )
        health.set("cluster", None if cluster_answers else "the API server does not answer")
        health.set("log", None if log_answers else "the log does not answer")
        if cluster_answers and log_answers:
            for watcher in watchers:
                watcher.due.set()
