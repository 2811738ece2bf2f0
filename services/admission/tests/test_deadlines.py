"""A webhook answers before the API server gives up, also when that does not answer us."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.runtime import runtime
from stromboli.testkit import records
from stromboli.testkit.admission_cases import manifests


class UnresponsiveCluster:
    """A cluster that never responds to a read, and never fails it."""

    def __init__(self) -> None:
        self.requested = self.cancelled = 0

    async def get(self, *_: Any) -> Any:
        """Never."""
        return await self._never()

    async def list(self, *_: Any) -> Any:
        """Never."""
        return await self._never()

    async def _never(self) -> Any:
        self.requested += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled += 1


def review(document: dict[str, Any]) -> bytes:
    kind = kinds.BY_NAME[document["apiVersion"], document["kind"]]
    requested = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    request = {
        "uid": "u",
        "kind": requested,
        "operation": "CREATE",
        "namespace": "default",
        "object": document,
        "userInfo": {"username": "ada"},
    }
    return msgspec.json.encode({"request": request})


WAITS_FOR_QUEUES = manifests.job(queue="not-seen-yet")
WAITS_FOR_A_JOB = manifests.annotated(manifests.job(), keys.AFTER, "afterok:other")


@pytest.mark.parametrize("document", [WAITS_FOR_QUEUES, WAITS_FOR_A_JOB], ids=["list", "get"])
async def test_a_webhook_fails_with_a_reason_before_the_callers_deadline(
    document: dict[str, Any],
) -> None:
    """With a 503 that names the slow dependency; its own read is cancelled."""
    cluster: Any = UnresponsiveCluster()
    admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
    transport = httpx.ASGITransport(app=webhooks.app(admission))  # type: ignore[arg-type]  # same ASGI
    async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
        async with asyncio.timeout(records.DEADLINE_S):
            answer = await client.post("/jobs/validate?timeout=200ms", content=review(document))
    said = answer.json()["response"]
    assert not said["allowed"]
    assert said["status"]["code"] == 503
    assert (
        "the API server did not answer admission's own reads within 0.1 s"
        in said["status"]["message"]
    )
    # On a busy machine the time may be up before it has read.
    assert cluster.cancelled == cluster.requested <= 1


async def test_a_review_without_reads_does_not_wait(tmp_path: Path) -> None:
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        answer = await admission.answer("/jobs/validate", review(manifests.job()), 5.0)
    assert msgspec.json.decode(answer)["response"]["allowed"]


@pytest.mark.parametrize(
    ("timeout", "budget"),
    [("10s", 9.0), ("30s", 29.0), ("1s", 0.5), ("", 9.0), ("soon", 9.0), ("-1s", 9.0), ("0s", 9.0)],
)
def test_the_budget_is_the_callers_timeout_minus_a_margin(timeout: str, budget: float) -> None:
    assert webhooks.budget_s(timeout) == budget
