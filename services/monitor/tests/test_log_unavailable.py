"""The log may be unavailable for a while: the monitor reports it and continues, and its history has
no gap.
"""

import asyncio

from services.monitor.tests import shell
from stromboli.monitor import service
from stromboli.scheduler.core.replay import snapshot_history
from stromboli.shared import envelope, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, objects
from stromboli.testkit.doubles import interruptible_bus


async def seen(running: shell.Running) -> None:
    """Its health names what it cannot read."""
    while "cache" not in running.health.problems:
        assert not running.task.done(), running.task.exception()
        await asyncio.sleep(0.001)
    while "history" not in running.health.warnings:  # noqa: ASYNC110 - a fact of its health
        await asyncio.sleep(0.001)


async def test_the_monitor_continues_after_an_outage_and_its_history_has_no_gap(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    breaks = interruptible_bus.InterruptibleBus(bus)
    async with shell.monitoring(breaks, cluster) as running:
        for number in range(3):
            async with breaks.cut(folds=1):
                await seen(running)
                await cluster.create(kinds.JOBS, "default", objects.job(f"j{number}"))
                await shell.until(bus, topics.JOBS, shell.count(number + 1))
            await running.health.ready()
        stood = [each.offset for each in await shell.said(bus, topics.JOBS)]
        await shell.until(bus, topics.CHANGES, lambda records: offsets(records) == stood)


def offsets(changes: list[envelope.Record]) -> list[int]:
    """Of the jobs' records that the history has."""
    return [
        each.offset
        for each in snapshot_history.read_history(changes).records
        if each.topic == topics.JOBS
    ]


async def test_a_monitor_that_cannot_write_stops_and_the_next_one_publishes(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    breaks = interruptible_bus.InterruptibleBus(bus)
    async with shell.monitoring(breaks, cluster) as running:
        breaks.writes_cut.set()
        await cluster.create(kinds.JOBS, "default", objects.job("j1"))
        while "log" not in running.health.problems:  # noqa: ASYNC110 - a fact of its health
            await asyncio.sleep(0.001)
    assert running.task.cancelled()
    assert await shell.said(bus, topics.JOBS) == []
    async with shell.monitoring(bus, cluster):
        await shell.until(bus, topics.JOBS, shell.count(1))


async def test_a_monitor_that_cannot_start_reports_the_reason_and_stops_on_request(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    breaks, health = interruptible_bus.InterruptibleBus(bus), runtime.Health("monitor")
    breaks.writes_cut.set()
    work = service.serve(shell.SETTINGS, breaks, cluster, health, lambda: builders.NOON)
    async with shell.going_on(work):
        while "log" not in health.problems:  # noqa: ASYNC110 - a fact of its health
            await asyncio.sleep(0.001)
        assert health.problems["log"] == "write the log: cut off"
