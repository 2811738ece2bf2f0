"""A door over an embedded cluster that calls it back, and REST before it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stromboli.admission.rest import rest
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.local.cluster import EmbeddedCluster, Hook
from stromboli.shared.runtime import http, runtime


def hook(doors: list[AdmissionService], kind: Any, way: str, operations: Any) -> Hook:
    async def call(body: bytes) -> bytes:
        return await doors[0].answer(f"/{kind.plural}/{way}", body)

    return Hook(kind=kind, operations=frozenset(operations), mutating=way == "mutate", call=call)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    doors: list[AdmissionService] = []
    hooks = [hook(doors, kind, way, operations) for kind, way, operations in webhooks.RULES]
    async with EmbeddedCluster(tmp_path / "cluster.db", hooks=hooks) as made:
        doors.append(AdmissionService(AdmissionSettings(), made, runtime.utc_now))
        yield made


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[httpx.AsyncClient]:
    door = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
    health = runtime.Health("admission")
    app = rest.app([*http.health_routes([health]), *rest.routes(door, cluster)])
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]  # same ASGI, other types
    async with httpx.AsyncClient(transport=transport, base_url="http://door") as made:
        await made.post("/v1/queues", json={"metadata": {"name": "default"}})
        yield made
