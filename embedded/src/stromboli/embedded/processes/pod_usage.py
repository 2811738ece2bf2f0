"""The usage of pods on process nodes, and its reports to the monitor.

Launchers measure their containers: they are the parents of all processes, so the kernel also
reports the CPU time and memory of ended processes to them. Therefore even the shortest pod has
values. Without a monitor (process nodes of a real API server) nothing is reported.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from stromboli.embedded.processes import launcher_client
from stromboli.monitor.core import pod_meter
from stromboli.shared import errors
from stromboli.shared.messages import base, node_usage
from stromboli.shared.runtime import telemetry

Exchange = Callable[[str, bytes], Awaitable[bytes]]
"""Sends the report of a node. Raises ExternalError."""
STEP_S = 1.0
SEND_EVERY_S = 3.0
"""Seconds between two reports of a node: less than on a cluster, because there are few nodes."""


class PodUsage:
    """The usage of a pod since its node began to run it: CPU time is the sum over all runs of its
    containers, memory is the sum of the peaks of its containers. ``since`` identifies the counter,
    which begins at zero when the system restarts."""

    def __init__(self, since: datetime) -> None:
        self._counter = _counter(since)
        self._running: dict[str, launcher_client.ContainerProcess] = {}
        self._ended_ms = 0
        self._most: dict[str, int] = {}

    def begin(self, container: str, process: launcher_client.ContainerProcess) -> None:
        """Add a run; the previous run of the container has ended."""
        if (before := self._running.get(container)) is not None and before.used is not None:
            self._ended_ms += before.used[0]
            self._most[container] = max(self._most.get(container, 0), before.used[1])
        self._running[container] = process

    def reading(self) -> pod_meter.Reading | None:
        """The values now; None before the first measurement."""
        used = {name: it.used for name, it in self._running.items() if it.used is not None}
        if not used and not self._most:
            return None
        most = dict(self._most)
        for name, (_, memory) in used.items():
            most[name] = max(most.get(name, 0), memory)
        cpu_ms = self._ended_ms + sum(cpu_ms for cpu_ms, _ in used.values())
        return pod_meter.Reading(self._counter, cpu_ms, sum(most.values()))


class UsageReporter:
    """Reports the usage of the pods of ``nodes`` since a time."""

    def __init__(self, nodes: Sequence[str], exchange: Exchange, since: datetime) -> None:
        self._exchange = exchange
        self._sampler = _counter(since)
        self._meters = {node: pod_meter.PodMeter(SEND_EVERY_S) for node in nodes}
        self._pods: dict[str, dict[str, PodUsage]] = {node: {} for node in nodes}
        self._ended: dict[str, dict[str, PodUsage]] = {node: {} for node in nodes}
        self._has_pods = asyncio.Event()
        self._trouble = ""

    def see(self, node: str, uid: str, usage: PodUsage, *, is_over: bool) -> None:
        """Record a pod of a node; ``is_over``: all its containers have ended."""
        if not is_over:
            self._pods[node][uid] = usage
        elif self._pods[node].pop(uid, None) is not None:
            self._ended[node][uid] = usage
        self._has_pods.set()

    async def run(self) -> None:
        """Report until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._has_pods.wait()
            for node in self._meters:
                await self._step(node, loop.time())
            if not any(self._pods.values()) and not any(map(len, self._meters.values())):
                self._has_pods.clear()
            else:
                await asyncio.sleep(STEP_S)

    async def _step(self, node: str, now_s: float) -> None:
        meter, running = self._meters[node], self._pods[node]
        ended, self._ended[node] = self._ended[node], {}
        wanted = {uid: running[uid] for uid in meter.observe(running, now_s)} | ended
        readings = {uid: it.reading() for uid, it in wanted.items()}
        meter.read({uid: it for uid, it in readings.items() if it is not None}, now_s)
        meter.observe(running, now_s)
        pods = meter.due(now_s)
        if not pods:
            return
        meter.sent(now_s)
        body = base.encode(node_usage.PodUsageReport(sampler=self._sampler, pods=pods))
        try:
            await self._exchange(node, body)
        except errors.ExternalError as error:
            if str(error) != self._trouble:
                telemetry.log.warning("usage of pods not reported", node=node, problem=str(error))
            self._trouble = str(error)
        else:
            self._trouble = ""
            meter.acknowledged(pods, now_s)


def _counter(since: datetime) -> str:
    """Identifies the counters that began at a time."""
    return f"{since.timestamp():.6f}"
