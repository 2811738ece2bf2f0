"""``python -m stromboli.monitor``: the service as a process of its own."""

import contextlib

from stromboli.monitor import service
from stromboli.monitor.settings import Settings
from stromboli.shared import process, runtime
from stromboli.shared.cluster.kubernetes import KubernetesCluster


async def main(settings: Settings, health: runtime.Health) -> None:
    """Watch the cluster until stopped."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            process.health_served(health, settings.health_host, settings.health_port)
        )
        cluster = await stack.enter_async_context(KubernetesCluster(settings.kubernetes))
        bus = await stack.enter_async_context(process.connected(settings.kafka, health))
        await service.serve(settings, bus, cluster, health, runtime.utc_now)


if __name__ == "__main__":
    process.start("monitor", Settings, main)
