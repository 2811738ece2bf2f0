"""``python -m stromboli.controller``: runs the controller as a separate process."""

import contextlib

from stromboli.controller import service
from stromboli.controller.settings import Settings
from stromboli.shared import process
from stromboli.shared.cluster.kubernetes import KubernetesCluster
from stromboli.shared.leader_election import cluster_lease
from stromboli.shared.runtime import runtime


async def main(settings: Settings, health: runtime.Health) -> None:
    """Serve health and reconcile until stopped."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            process.serve_health(health, settings.health_host, settings.health_port)
        )
        cluster = await stack.enter_async_context(KubernetesCluster(settings.kubernetes))
        bus = await stack.enter_async_context(process.connect_bus(settings.kafka, health))
        await stack.enter_async_context(process.watch_dependency(cluster, "API server", health))
        lease = cluster_lease.lease(
            settings.lease,
            "controller",
            settings.kafka.cluster_name,
            cluster,
            health,
            runtime.utc_now,
        )
        await service.serve(settings, bus, cluster, health, runtime.utc_now, lease)


if __name__ == "__main__":
    process.start("controller", Settings, main)
