"""``python -m stromboli.admission``: the service as a process of its own."""

import contextlib
import os
import sys

from stromboli.shared.bus.kafka import KafkaBus
from stromboli.shared.cluster.kubernetes import KubernetesCluster

from stromboli.admission import rest, service, webhooks
from stromboli.admission.door import Door
from stromboli.admission.settings import Settings
from stromboli.shared import http, runtime, telemetry
from stromboli.shared import settings as settings_reader

LOOPBACK = ("127.0.0.1", "::1", "localhost")


async def main(settings: Settings) -> None:
    """Serve REST, webhooks and health until stopped."""
    health = runtime.Health("admission")
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(KubernetesCluster(settings.kubernetes))
        door = Door(settings, cluster, runtime.utc_now)
        handlers = [*http.health_routes([health]), *rest.routes(door, cluster)]
        bound = http.listen(settings.rest_host, settings.rest_port)
        port = await stack.enter_async_context(http.serving(rest.app(handlers), bound))
        telemetry.log.info("listening", rest=f"http://{settings.rest_host}:{port}")
        if settings.certificate_file:
            bound = http.listen(settings.webhook_host, settings.webhook_port)
            serving = http.serving(
                webhooks.app(door),
                bound,
                certificate_file=settings.certificate_file,
                key_file=settings.key_file,
            )
            telemetry.log.info("listening", webhooks=await stack.enter_async_context(serving))
        health.set("log", "connecting")
        bus = KafkaBus(settings.kafka)
        await runtime.persist(bus.__aenter__, "log", health)
        stack.push_async_exit(bus)
        await service.serve(door, settings, bus, health, runtime.utc_now, settings.instance)


if __name__ == "__main__":
    telemetry.set_up("admission", os.environ)
    try:
        read = settings_reader.load(Settings, "admission", os.environ)
    except settings_reader.SettingsError as error:
        sys.exit(str(error))
    if read.rest_host not in LOOPBACK:
        sys.exit(
            f"STROM_ADMISSION_REST_HOST={read.rest_host}: REST knows no accounts yet and listens "
            f"on loopback only; use one of {', '.join(LOOPBACK)}"
        )
    telemetry.log.info("settings", **settings_reader.shown(read))
    runtime.run(lambda: main(read))
