"""A user without a right gets a message that names it, over REST, the command line and Kafka, and
no token is stored on any topic, in any log line or in any span.
"""

import asyncio
import contextlib
import io
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import httpx
import msgspec
import pytest
import structlog
from litestar import Litestar, Request, post

from stromboli.admission import service
from stromboli.admission.rest import application
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared import errors, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import kafka, port
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.shared.runtime import http, runtime, telemetry
from stromboli.testkit import crds, objects, tenants
from stromboli.testkit.checkers import token_leaks
from stromboli.testkit.contracts import accounts as contract
from stromboli.testkit.contracts.accounts import AUDIENCE, OTHER_AUDIENCE, Scene
from stromboli.testkit.doubles import authorized_admission
from stromboli.testkit.parts import kubernetes, real
from stromboli.testkit.real_system import Service

pytest_plugins = ["stromboli.testkit.parts.fixtures"]

ROOT = Path(__file__).parents[2]
README = ROOT / "services" / "admission" / "README.md"
PRODUCER = ROOT / "examples" / "producer.py"
SPANS_WITHIN_S = 120
INTERVAL = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}
REQUIRED = {"/v1/history/usage": INTERVAL}
"""Path -> the parameters without which it is refused."""
NO_HISTORY = "this server runs without a history service"


class AdmissionCell(msgspec.Struct):
    """See ``leaks.Cell``."""

    url: str
    scene: Scene
    tokens: dict[tuple[str, str], str]
    bus: port.Bus
    put: Any
    written: Any
    name: str = ""


# --- one process -----------------------------------------------------------------------------


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """All log lines during the context, of all loggers and levels."""
    buffer = io.StringIO()
    before = structlog.get_config()
    handler = logging.StreamHandler(buffer)
    root = logging.getLogger()
    level = root.level
    telemetry.configure_logs(logging.DEBUG, buffer)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield buffer
    root.setLevel(level)
    root.removeHandler(handler)
    structlog.configure(**before)


@pytest.fixture
async def embedded(tmp_path: Path, lines: io.StringIO) -> AsyncIterator[AdmissionCell]:
    """Admission over the embedded log and cluster."""
    async with (
        authorized_admission.open_admission(tmp_path, Scene()) as server,
        EmbeddedBus(tmp_path / "log.db") as bus,
        http.serving(server.app, http.listen("127.0.0.1", 0)) as taken,
        asyncio.TaskGroup() as group,
    ):
        health = runtime.Health("admission")
        work = service.serve(
            server.admission, AdmissionSettings(), bus, health, runtime.utc_now, "test"
        )
        task = group.create_task(work)

        async def put(headers: dict[str, str], value: bytes) -> None:
            await bus.put(topics.SUBMISSIONS, "", headers, value)

        tokens = {
            (user, audience): authorized_admission.token_of(user, audience)
            for user in authorized_admission.USERS
            for audience in (AUDIENCE, OTHER_AUDIENCE)
        }
        url = f"http://127.0.0.1:{taken}"
        yield AdmissionCell(url, server.scene, tokens, bus, put, lines.getvalue)
        task.cancel()


async def test_a_missing_right_is_named_and_no_token_is_kept(
    embedded: AdmissionCell, tmp_path: Path
) -> None:
    await token_leaks.check_rest(embedded)
    await token_leaks.check_command_line(embedded, tmp_path)
    await token_leaks.check_kafka(embedded)
    await token_leaks.assert_no_token_left(embedded)
    assert "submission answered" in embedded.written()


def test_an_unexpected_error_is_logged_without_tokens(lines: io.StringIO) -> None:
    """Local variables would be the request, and its token."""

    def handle(token: str) -> None:
        raise RuntimeError(f"a bug with {len(token)} letters")

    try:
        handle("a-very-secret-token")
    except RuntimeError as error:
        telemetry.log.error("unexpected", exc_info=error)
    assert "a bug with 19 letters" in lines.getvalue()
    assert "handle" in lines.getvalue()
    assert "very-secret" not in lines.getvalue()


# --- the real parts ---------------------------------------------------------------------------


class Admission(Service):
    """The service as it is shipped. Alone it is never ready, since no monitor publishes queues: it
    is enough that it is alive.
    """

    async def is_ready(self) -> bool:
        return await kubernetes.answers_ok(f"{self.url}/livez")


class Collector:
    """Takes spans as an OpenTelemetry collector does, and keeps their bytes."""

    def __init__(self) -> None:
        self.spans = b""
        self._came = asyncio.Event()

    def app(self) -> Litestar:
        @post("/v1/traces", status_code=200)
        async def take(request: Request[Any, Any, Any]) -> None:
            self.spans += await request.body()
            self._came.set()

        return Litestar([take], openapi_config=None)

    async def until(self, *names: bytes) -> bytes:
        """The spans received so far, when spans of these names are among them."""
        async with asyncio.timeout(SPANS_WITHIN_S):
            while not all(name in self.spans for name in names):
                self._came.clear()
                await self._came.wait()
        return self.spans


def documented_rights() -> dict[str, Any]:
    """The ClusterRole that admission's README documents."""
    rows = re.findall(
        r"^\| ([^|]+) \| (`[^|]+) \| ([a-z, ]+) \| [^|]+ \|$", README.read_text(), re.M
    )
    rules = [
        {
            "apiGroups": ["" if each == "core" else each.strip("`") for each in groups.split(", ")],
            "resources": [each.strip("`") for each in resources.split(", ")],
            "verbs": verbs.split(", "),
        }
        for groups, resources, verbs in rows
        if groups != "apiGroups"
    ]
    assert len(rules) > 8
    return contract.manifest("ClusterRole", objects.unique("admission"), rules=rules)


async def kubeconfig(api: Any, parts: real.RealParts, scene: Scene, folder: Path) -> Path:
    """For an account with exactly the rights of the README."""
    role = documented_rights()
    name = role["metadata"]["name"]
    await tenants.create_account(api, scene.blue, name)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": scene.blue}
    bound = contract.binding(name, "", contract.ref("ClusterRole", name), subject)
    await tenants.grant(api, [role, bound])
    config = json.loads(parts.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": await tenants.token(api, scene.blue, name)}
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


@contextlib.asynccontextmanager
async def real_cell(
    parts: real.RealParts, folder: Path, collector: Collector
) -> AsyncIterator[AdmissionCell]:
    """The service as a process, on the real parts, with its own rights and no more."""
    scene = Scene()
    cell = objects.unique("accounts")
    admin = KubernetesCluster(KubernetesSettings(kubeconfig=str(parts.kubeconfig)))
    settings = kafka.KafkaSettings(bootstrap=(parts.kafka_bootstrap,), cluster_name=cell)
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(parts.client())
        await crds.apply_crds(await stack.enter_async_context(admin))
        with contextlib.suppress(errors.AlreadyExistsError):
            await admin.create(kinds.QUEUES, "", objects.make(kinds.QUEUES, "default"))
        await tenants.create(api, scene)
        tokens = await tenants.tokens(api, scene, (AUDIENCE, OTHER_AUDIENCE))
        bus = await stack.enter_async_context(kafka.KafkaBus(settings))
        listening = http.listen("127.0.0.1", 0)
        taken = await stack.enter_async_context(http.serving(collector.app(), listening))
        environment = {
            "STROM_KAFKA_BOOTSTRAP": parts.kafka_bootstrap,
            "STROM_KAFKA_CLUSTER_NAME": cell,
            "STROM_KUBERNETES_KUBECONFIG": str(await kubeconfig(api, parts, scene, folder)),
            "STROM_ADMISSION_ACCOUNTS": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{taken}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        admission = Admission("admission", folder / "admission", environment)
        await admission.start()
        stack.push_async_callback(admission.stop)
        producer = await stack.enter_async_context(
            aiokafka.AIOKafkaProducer(bootstrap_servers=parts.kafka_bootstrap)
        )

        async def put(headers: dict[str, str], value: bytes) -> None:
            pairs = [(name, text.encode()) for name, text in headers.items()]
            name = topics.SUBMISSIONS.full_name(cell)
            await producer.send_and_wait(name, value, headers=pairs)

        yield AdmissionCell(admission.url, scene, tokens, bus, put, admission.process.logged, cell)


@pytest.mark.real
async def test_a_missing_right_is_named_and_no_token_is_kept_on_the_real_parts(
    real_parts: real.RealParts, tmp_path: Path
) -> None:
    """With RBAC for tenants and for admission itself, which has the rights of its README."""
    collector = Collector()
    async with real_cell(real_parts, tmp_path, collector) as cell:
        await token_leaks.check_rest(cell)
        await token_leaks.check_command_line(cell, tmp_path)
        await token_leaks.check_kafka(cell)
        spans = await collector.until(b"take submission", b"submit")
        await example_submits(real_parts, cell, tmp_path)
        await token_leaks.assert_no_token_left(cell, spans)
        assert "submission answered" in cell.written()
        await admin_reads_every_route(real_parts, cell)


async def example_submits(parts: real.RealParts, cell: AdmissionCell, folder: Path) -> None:
    """It ends well once its own submission is answered, and prints the answer."""
    file = folder / "job.yaml"
    file.write_text(json.dumps(token_leaks.job("of-the-example", cell.scene.blue)))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PRODUCER),
        str(file),
        parts.kafka_bootstrap,
        cell.name,
        env={**os.environ, "STROM_TOKEN": cell.tokens["ann", OTHER_AUDIENCE]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(SPANS_WITHIN_S):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert f"{cell.scene.blue}/of-the-example" in said.decode()


async def admin_reads_every_route(parts: real.RealParts, cell: AdmissionCell) -> None:
    """Who may do everything finds no route that admission itself has no right for."""
    boss = objects.unique("boss")
    async with parts.client() as api:
        await tenants.create_account(api, cell.scene.blue, boss)
        subject = {"kind": "ServiceAccount", "name": boss, "namespace": cell.scene.blue}
        role = contract.ref("ClusterRole", "cluster-admin")
        await tenants.grant(api, [contract.binding(boss, "", role, subject)])
        token = await tenants.token(api, cell.scene.blue, boss, AUDIENCE)
    headers = {"authorization": f"Bearer {token}"}
    failed = {}
    async with httpx.AsyncClient(base_url=cell.url, headers=headers, timeout=60) as client:
        for route in application.application_for_openapi().routes:
            if "GET" not in route.methods or not route.path.startswith("/v1"):
                continue
            path = route.path_format.replace("{namespace}", cell.scene.blue)
            path = path.replace("{name}", "over-rest")
            requested = {"timeoutSeconds": "0.05"} if path.startswith("/v1/watch") else {}
            requested |= REQUIRED.get(path, {})
            answer = await client.get(path, params=requested)
            if path.startswith("/v1/history"):  # these parts have no history service
                if answer.status_code != 503 or NO_HISTORY not in answer.text:
                    failed[path] = answer.text
            elif answer.status_code not in (200, 404):
                failed[path] = answer.text
    assert failed == {}
