"""Admission on an embedded cluster that calls its webhooks, and its REST API."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.embedded.cluster import EmbeddedCluster, Webhook
from stromboli.shared.runtime import runtime
from stromboli.testkit.doubles import shared_rest


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
    async with EmbeddedCluster(tmp_path / "cluster.db", hooks=hooks) as embedded_cluster:
        admissions.append(AdmissionService(AdmissionSettings(), embedded_cluster, runtime.utc_now))
        yield embedded_cluster


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[httpx.AsyncClient]:
    admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
    with shared_rest.rest_of(admission, cluster, runtime.Health("admission")) as app:
        transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]  # same ASGI, other types
        async with httpx.AsyncClient(
            transport=transport, base_url="http://admission"
        ) as async_client:
            await async_client.post("/v1/queues", json={"metadata": {"name": "default"}})
            yield async_client
