"""What an operator relies on, on the real parts: one trace, metrics, health, a quick end."""

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stromboli.shared import keys
from stromboli.testkit.parts import tools
from stromboli.testkit.real_system import RealSystem
from stromboli.testkit.rest_authorization import authorization

pytestmark = pytest.mark.real
READY_WITHIN_S = 90.0
"""A service may be reading the log again, on a busy machine."""
STOPPED_WITHIN_S = 25.0
"""Below the grace period of a pod, on a busy machine, too."""
Job = dict[str, Any]


class Collector:
    """A place that traces are sent to: (trace id, service) of every span."""

    def __init__(self) -> None:
        self.spans: set[tuple[str, str, str]] = set()
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest.FromString(await request.read())
        for resource in message.resource_spans:
            names = {item.key: item.value.string_value for item in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans |= {
                    (span.trace_id.hex(), names["service.name"], span.name) for span in scope.spans
                }
        return web.Response()

    def services(self, trace: str) -> set[str]:
        return {service for found, service, _ in self.spans if found == trace}


def job(name: str) -> Job:
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"annotations": {keys.RUN_SECONDS: "0.2"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "metadata": {"name": name},
        "spec": {"tasks": [{"name": "t", "replicas": 2, "template": template}]},
    }


async def finished(http: aiohttp.ClientSession, name: str) -> Any:
    """The job once it is Completed."""
    async with asyncio.timeout(READY_WITHIN_S):
        while True:
            async with http.get(f"/v1/namespaces/default/jobs/{name}") as answer:
                found = await answer.json()
            if found.get("status", {}).get("state", {}).get("phase") == "Completed":
                return found
            await asyncio.sleep(0.05)


async def test_one_trace_metrics_health_and_a_prompt_shutdown(
    real_tools: tools.Tools, tmp_path: Path
) -> None:
    """One system for all checks, because its start takes time."""
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = runner.addresses[0]
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{address[1]}",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    try:
        async with RealSystem(tmp_path, simulated_nodes=2, environment=environment) as system:
            async with aiohttp.ClientSession(system.url, headers=authorization(system.url)) as http:
                async with http.post("/v1/namespaces/default/jobs", json=job("traced")) as answer:
                    assert answer.status == 201
                done = await finished(http, "traced")
                async with http.get("/v1/namespaces/default/jobs/traced/pods") as answer:
                    pods = (await answer.json())["items"]
            trace = done["metadata"]["annotations"][keys.TRACEPARENT].split("-")[1]
            assert {
                pod["metadata"]["annotations"][keys.TRACEPARENT].split("-")[1] for pod in pods
            } == {trace}
            for service in system.services.values():
                async with aiohttp.ClientSession(
                    service.url, headers=authorization(service.url)
                ) as http:
                    assert (await http.get("/livez")).status == 200
                    async with asyncio.timeout(READY_WITHIN_S):
                        while (await http.get("/readyz")).status != 200:  # noqa: ASYNC110 - of another process
                            await asyncio.sleep(0.1)
                    assert "stromboli" in await (await http.get("/metrics")).text()
            began = time.monotonic()
            await asyncio.gather(*(service.stop() for service in system.services.values()))
            assert time.monotonic() - began < STOPPED_WITHIN_S
        assert collector.services(trace) >= {
            "stromboli-admission",
            "stromboli-controller",
            "stromboli-scheduler",
        }
    finally:
        await runner.cleanup()
