"""``python -m stromboli.admission``: the service as a process of its own."""

import contextlib
import sys

from stromboli.admission import certificates, rest, service, webhooks
from stromboli.admission.door import Door
from stromboli.admission.settings import Settings
from stromboli.shared import http, process, runtime, telemetry
from stromboli.shared.cluster.kubernetes import KubernetesCluster
from stromboli.shared.cluster.port import Cluster

LOOPBACK = ("127.0.0.1", "::1", "localhost")


async def main(settings: Settings, health: runtime.Health) -> None:
    """Serve REST, webhooks and health until stopped."""
    if settings.rest_host not in LOOPBACK:
        sys.exit(
            f"STROM_ADMISSION_REST_HOST={settings.rest_host}: REST knows no accounts yet and "
            f"listens on loopback only; use one of {', '.join(LOOPBACK)}"
        )
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            process.health_served(health, settings.health_host, settings.health_port)
        )
        cluster = await stack.enter_async_context(KubernetesCluster(settings.kubernetes))
        door = Door(settings, cluster, runtime.utc_now)
        handlers = [*http.health_routes([health]), *rest.routes(door, cluster)]
        bound = http.listen(settings.rest_host, settings.rest_port)
        port = await stack.enter_async_context(http.serving(rest.app(handlers), bound))
        await stack.enter_async_context(door.feeds)
        telemetry.log.info("listening", rest=f"http://{settings.rest_host}:{port}")
        if (certificate := _certificate(settings, cluster)) is not None:
            bound = http.listen(settings.webhook_host, settings.webhook_port)
            tls = await stack.enter_async_context(certificate.kept(health))
            serving = http.serving(webhooks.app(door), bound, tls=tls)
            port = await stack.enter_async_context(serving)
            telemetry.log.info("listening", webhooks=f"https://{settings.webhook_host}:{port}")
        bus = await stack.enter_async_context(process.connected(settings.kafka, health))
        await stack.enter_async_context(process.noticed(cluster, "API server", health))
        await service.serve(door, settings, bus, health, runtime.utc_now, settings.instance)


def _certificate(
    settings: Settings, cluster: Cluster
) -> certificates.Files | certificates.Own | None:
    """Where the webhooks' certificate comes from; None: there are no webhooks."""
    if settings.certificate_file:
        return certificates.Files(settings.certificate_file, settings.key_file)
    if not settings.certificate_secret:
        return None
    if "/" not in settings.certificate_secret or not settings.certificate_names:
        sys.exit(
            "STROM_ADMISSION_CERTIFICATE_SECRET: say it as namespace/name, and in "
            "STROM_ADMISSION_CERTIFICATE_NAMES the hosts by which the API server calls us"
        )
    return certificates.Own(
        cluster,
        runtime.utc_now,
        secret=settings.certificate_secret,
        names=settings.certificate_names,
        configuration=settings.webhook_configuration,
    )


if __name__ == "__main__":
    process.start("admission", Settings, main)
