"""``python -m stromboli.monitor``: runs the service as its own process."""

import contextlib
import time

from stromboli.monitor import agent_receiver, service
from stromboli.monitor.settings import Settings
from stromboli.shared import process
from stromboli.shared.cluster.kubernetes import KubernetesAccounts, KubernetesCluster
from stromboli.shared.leader_election import cluster_lease
from stromboli.shared.runtime import http, runtime, telemetry


async def main(settings: Settings, health: runtime.Health) -> None:
    """Watch the cluster until stopped."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            process.serve_health(health, settings.health_host, settings.health_port)
        )
        cluster = await stack.enter_async_context(KubernetesCluster(settings.kubernetes))
        known = agent_receiver.AgentReceiver(
            settings, KubernetesAccounts(cluster), cluster, runtime.utc_now, time.monotonic
        )
        server = http.serving(
            agent_receiver.app(known),
            http.listen(settings.agents_host, settings.agents_port),
            certificate_file=settings.agents_certificate_file,
            key_file=settings.agents_key_file,
        )
        port = await stack.enter_async_context(server)
        telemetry.log.info(
            "listening", agents=port, encrypted=bool(settings.agents_certificate_file)
        )
        bus = await stack.enter_async_context(process.connect_bus(settings.kafka, health))
        lease = cluster_lease.lease(
            settings.lease, "monitor", settings.kafka.cluster_name, cluster, health, runtime.utc_now
        )
        await service.serve(settings, bus, cluster, health, runtime.utc_now, known, lease)


if __name__ == "__main__":
    process.start("monitor", Settings, main)
