"""Services as their images install them and compose starts them, with real Kafka, a real control
plane and a real Prometheus, until jobs have finished.

There is no container engine here: each Dockerfile's own steps are run into a folder, and
``composed`` describes how compose.yaml is executed.
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import yaml
from aiokafka import admin
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from stromboli.testkit.doubles import http_server
from stromboli.testkit.parts import tools
from tests.images.support import compose_services, image_build
from tools.compose import dashboards

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="each container has an address of its own"),
]
in_one_loop = pytest.mark.asyncio(loop_scope="module")
QUERIES = [promql for _, promql in dashboards.queries()]
ELSEWHERE = re.compile("traces_span_metrics|volcano_queue_capacity")
"""Not checked here: the collector's metrics, and the capability of a queue, which is present only
while the queue has jobs.
"""
STROM = Path(sys.executable).parent / "strom"
EXAMPLES = image_build.ROOT / "examples"
REFUSED = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: refused, namespace: default}
spec:
  queue: no-such-queue
  tasks: [{name: a, replicas: 1, template: {spec: {containers: [{name: c, image: i}]}}}]
"""


@pytest.fixture(scope="module")
def up(
    images: dict[str, image_build.Image],
    real_tools: tools.Tools,
    tmp_path_factory: pytest.TempPathFactory,
) -> compose_services.ComposeServices:
    """What ``docker compose up --wait`` is to bring up; its file is valid for Docker's reader."""
    try:
        found = compose_services.model(real_tools.program("compose-go"))
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stderr, pytrace=False)
    return compose_services.ComposeServices(
        found, images, real_tools, tmp_path_factory.mktemp("compose")
    )


@pytest.fixture(scope="module")
def collector(up: compose_services.ComposeServices) -> Iterator[http_server.Server]:
    """Takes traces where the collector would."""
    server = http_server.Server(lambda _: http_server.Reply(), up.address("collector"), 4318)
    with server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(
    up: compose_services.ComposeServices, collector: http_server.Server
) -> AsyncIterator[compose_services.ComposeServices]:
    """Everything runs, and examples have run through it."""
    async with up.up():
        await strom(up, "apply", "-f", str(EXAMPLES / "gang.yaml"))
        await strom(up, "job", "wait", "gang")
        yield up


async def strom(system: compose_services.ComposeServices, *words: str) -> str:
    """What the command line prints; it runs as a person runs it on this machine."""
    address = ["--server", system.url("admission", 8480)]
    running = await asyncio.create_subprocess_exec(
        STROM, *words, *address, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await running.communicate()
    assert running.returncode == 0, said.decode()
    return said.decode()


@in_one_loop
@pytest.mark.parametrize(("name", "job"), [("hello", "hello"), ("priority", "urgent")])
async def test_an_example_finishes(
    name: str, job: str, system: compose_services.ComposeServices
) -> None:
    """From this machine; a gang has before."""
    await strom(system, "apply", "-f", str(EXAMPLES / f"{name}.yaml"))
    await strom(system, "job", "wait", job)


@in_one_loop
async def test_the_history_of_a_job_is_found(system: compose_services.ComposeServices) -> None:
    """Admission and the history share a token, and the history writes to its volume."""
    async with asyncio.timeout(60):
        while True:
            if "Succeeded" in await strom(system, "history", "gang"):
                break
            await asyncio.sleep(0.2)
    assert "Completed" in await strom(system, "timeline", "gang")


@in_one_loop
async def test_the_console_shows_a_job(system: compose_services.ComposeServices) -> None:
    """Without a token, as REST of this system; its lists follow admission."""
    async with httpx.AsyncClient(base_url=system.url("console", 8487)) as browser:
        answer = await browser.post("/login", data={"namespace": ""})
        assert answer.status_code == 303, answer.text
        assert "gang" in (await browser.get("/jobs")).raise_for_status().text
        assert "Completed" in (await browser.get("/jobs/default/gang")).raise_for_status().text


@in_one_loop
async def test_events_can_be_read_from_this_machine(
    system: compose_services.ComposeServices,
) -> None:
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-u",
        EXAMPLES / "consumer.py",
        f"{system.address('kafka')}:9092",
        stdout=asyncio.subprocess.PIPE,
    )
    assert running.stdout is not None
    try:
        async with asyncio.timeout(60):
            async for line in running.stdout:
                if b"gang" in line and b"Completed" in line:
                    break
    finally:
        running.kill()
        await running.wait()


@in_one_loop
async def test_the_control_plane_calls_the_webhooks(
    system: compose_services.ComposeServices, real_tools: tools.Tools
) -> None:
    """With the certificate that admission generated: kubectl shows the violations, too."""
    applying = await asyncio.create_subprocess_exec(
        real_tools.program("kubectl"),
        "apply",
        f"--server={system.url('control-plane', 8080)}",
        "--filename=-",
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await applying.communicate(REFUSED.encode())
    assert applying.returncode != 0
    assert "queue 'no-such-queue' does not exist" in said.decode()


@in_one_loop
async def test_every_setting_of_kafka_exists(
    system: compose_services.ComposeServices,
) -> None:
    """It passes over others without a word."""
    client = admin.AIOKafkaAdminClient(bootstrap_servers=f"{system.address('kafka')}:9092")
    await client.start()
    try:
        broker = admin.config_resource.ConfigResource(
            admin.config_resource.ConfigResourceType.BROKER, "1"
        )
        (answer,) = await client.describe_configs([broker])
    finally:
        await client.close()
    known = {entry[0] for resource in answer.resources for entry in resource[-1]}
    environment = compose_services.parsed()["services"]["kafka"]["environment"]
    settings = set(environment) - {"CLUSTER_ID", "KAFKA_HEAP_OPTS"}
    requested = {name.removeprefix("KAFKA_").lower().replace("_", ".") for name in settings}
    assert requested <= known


@in_one_loop
@pytest.mark.parametrize("promql", [each for each in QUERIES if not ELSEWHERE.search(each)])
async def test_no_panel_is_empty(promql: str, system: compose_services.ComposeServices) -> None:
    """Once a gang has been through."""
    async with httpx.AsyncClient(base_url=system.url("prometheus", 9090)) as client:
        found: list[object] = []
        async with asyncio.timeout(120):
            while not found:
                answer = await client.get("/api/v1/query", params={"query": promql})
                found = answer.raise_for_status().json()["data"]["result"]
                await asyncio.sleep(0.2)


@in_one_loop
async def test_every_service_is_scraped(system: compose_services.ComposeServices) -> None:
    async with httpx.AsyncClient(base_url=system.url("prometheus", 9090)) as client:
        answer = await client.get("/api/v1/targets")
    targets = answer.raise_for_status().json()["data"]["activeTargets"]
    away = [each for each in targets if each["health"] != "up"]
    assert {each["labels"]["job"] for each in targets} > {"stromboli", "kubernetes", "traces"}
    assert [each["labels"]["job"] for each in away] == ["traces"]


@in_one_loop
async def test_every_alert_is_loaded(system: compose_services.ComposeServices) -> None:
    async with httpx.AsyncClient(base_url=system.url("prometheus", 9090)) as client:
        response = await client.get("/api/v1/rules", params={"type": "alert"})
    (group,) = response.raise_for_status().json()["data"]["groups"]
    text = (compose_services.FOLDER / "prometheus/alerts.yaml").read_text()
    (expected,) = yaml.safe_load(text)["groups"]
    names = [rule["alert"] for rule in expected["rules"]]
    assert [rule["name"] for rule in group["rules"]] == names


@in_one_loop
async def test_the_collector_receives_traces(
    system: compose_services.ComposeServices, collector: http_server.Server
) -> None:
    """From all services that handle a job."""
    wanted = {f"stromboli-{name}" for name in ("admission", "scheduler", "controller")}
    seen: set[str] = set()
    async with asyncio.timeout(60):
        while not wanted <= seen:
            await asyncio.sleep(0.2)
            seen = set(senders(collector))
    assert {request.path for request in collector.requests} == {"/v1/traces"}


def senders(collector: http_server.Server) -> Iterator[str]:
    """Names of services that have sent spans."""
    for request in list(collector.requests):
        export = trace_service_pb2.ExportTraceServiceRequest.FromString(request.body)
        for spans in export.resource_spans:
            for attribute in spans.resource.attributes:
                if attribute.key == "service.name":
                    yield attribute.value.string_value


@in_one_loop
@pytest.mark.parametrize("name", compose_services.OURS)
async def test_an_image_checks_its_own_health(
    name: str, system: compose_services.ComposeServices, images: dict[str, image_build.Image]
) -> None:
    """Its check succeeds while the service runs, and fails when no process listens."""
    check = images[name].healthcheck
    program = images[name].root / "opt/stromboli/bin" / check[0]
    for host, is_healthy in ((system.address(name), True), (system.address("grafana"), False)):
        words = [word.replace("//127.0.0.1:", f"//{host}:") for word in check[1:]]
        running = await asyncio.create_subprocess_exec(
            program, *words, stderr=asyncio.subprocess.DEVNULL
        )
        assert (await running.wait() == 0) is is_healthy


@in_one_loop
async def test_a_service_that_stopped_is_not_healthy(
    system: compose_services.ComposeServices,
) -> None:
    """Compose's own check; the last test here, since it stops one."""
    assert await system.check_health("monitor") == 0
    await system.stop("monitor")
    assert await system.check_health("monitor") != 0


def test_an_image_contains_no_other_files_of_the_repository(
    images: dict[str, image_build.Image],
) -> None:
    """What it runs is installed in it: the folder of this checkout is named nowhere."""
    for each in images.values():
        installed = each.root / "opt/stromboli"
        paths = [path.read_text() for path in installed.rglob("*.pth")]
        assert not any(str(image_build.ROOT) in text for text in paths)
        assert (installed / "bin/python").resolve() == Path(sys.executable).resolve()
