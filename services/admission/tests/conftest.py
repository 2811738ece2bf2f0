"""Admission on an embedded cluster that calls its webhooks, and its REST API."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stromboli.admission.rest import application
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.embedded.cluster import EmbeddedCluster, Webhook
from stromboli.shared.runtime import http, runtime


def hook(admissions: list[AdmissionService], kind: Any, action: str, operations: Any) -> Webhook:
    async def call(body: bytes) -> bytes:
        return await admissions[0].answer(f"/{kind.plural}/{action}", body)

    return Webhook(
        kind=kind, operations=frozenset(operations), mutating=action == "mutate", call=call
    )


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    admissions: list[AdmissionService] = []
    hooks = [
        hook(admissions, kind, action, operations) for kind, action, operations in webhooks.RULES
    ]
    async with EmbeddedCluster(tmp_path / "cluster.db", hooks=hooks) as made:
        admissions.append(AdmissionService(AdmissionSettings(), made, runtime.utc_now))
        yield made


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[httpx.AsyncClient]:
    admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
    health = runtime.Health("admission")
    app = application.app([*http.health_routes([health]), *application.routes(admission, cluster)])
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]  # same ASGI, other types
    async with httpx.AsyncClient(transport=transport, base_url="http://door") as made:
        await made.post("/v1/queues", json={"metadata": {"name": "default"}})
        yield made
