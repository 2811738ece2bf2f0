"""While another system's lease claims one of our scheduler names: not ready, and not blocking
others.

An API server rejects objects if the webhook is unreachable. So the webhooks continue to respond,
and pass the objects of the other system.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from services.admission.tests.test_entry_points import EntryPoints, opened, request
from stromboli.admission import service
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared import envelope, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import port as bus_port
from stromboli.shared.messages import cluster
from stromboli.shared.runtime import http, runtime
from stromboli.testkit import records
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.admission_cases.rules import Case

VOLCANO = cluster.Competitor(
    lease="volcano-system/vc-scheduler",
    holder="vc-scheduler-7",
    since="2026-01-01T12:00:00Z",
    scheduler_name="volcano",
)
TEMPLATE = Path(__file__).parents[1] / "chart" / "templates" / "deployment.yaml"
WRONG_QUEUE = manifests.queue("team", capability={"cpu": "-1"})


class RivalCluster:
    """A served admission, and a writer for the monitor's topics."""

    def __init__(
        self, entry_points: EntryPoints, monitor: bus_port.Writer, health: runtime.Health
    ) -> None:
        self.entry_points = entry_points
        self._monitor = monitor
        self.health = health

    async def competitors(self, *competitors: cluster.Competitor) -> None:
        """Return once admission knows that these act, and no others."""
        competitors_observed = cluster.CompetitorsObserved(competitors=competitors)
        synced = cluster.KindSynced(
            kind="queues", resource_version="1", state="synced", at=runtime.utc_now()
        )
        async with asyncio.timeout(records.DEADLINE_S):
            while True:
                # As a monitor does: what was appended before the service started proves nothing.
                for key, message in (
                    (cluster.COMPETITORS_KEY, competitors_observed),
                    ("queues", synced),
                ):
                    draft = envelope.Draft(
                        topic=topics.SYNC, key=key, message=message, time=runtime.utc_now()
                    )
                    await self._monitor.append(draft)
                await asyncio.sleep(0.05)
                if self._knows(bool(competitors)):
                    return

    def _knows(self, is_beside: bool) -> bool:
        facts = self.health.problems
        return ("competitors" in facts) == is_beside and not {"cache", "sync"} & facts.keys()

    async def ready(self, path: str = "/readyz") -> httpx.Response:
        transport = httpx.ASGITransport(app=http.health_app(self.health))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
            return await client.get(path)

    async def requested(self, kind: Any, document: Any) -> tuple[bool, bool]:
        """Whether an API server's question is answered with a patch, and with yes."""
        case = Case(name="", kind=kind, document=document)
        body = msgspec.json.encode(request(case, document))
        mutated = await self.entry_points.admission.answer(f"/{kind.plural}/mutate", body)
        validated = await self.entry_points.admission.answer(f"/{kind.plural}/validate", body)
        allowed = msgspec.json.decode(validated)["response"]["allowed"]
        return "patch" in msgspec.json.decode(mutated)["response"], allowed


@pytest.fixture
async def rival_cluster(tmp_path: Path) -> AsyncIterator[RivalCluster]:
    health = runtime.Health("admission")
    async with EmbeddedBus(tmp_path / "log.db") as bus, opened(tmp_path) as entry_points:
        monitor = await bus.open_writer("monitor", "test")
        work = service.serve(
            entry_points.admission, AdmissionSettings(), bus, health, runtime.utc_now, "test"
        )
        serving = asyncio.create_task(work)
        yield RivalCluster(entry_points, monitor, health)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


def job(scheduler: str, **spec: Any) -> Any:
    return manifests.job(schedulerName=scheduler, **spec)


async def test_webhooks_pass_objects_of_other_systems_and_validate_ours(
    rival_cluster: RivalCluster,
) -> None:
    await rival_cluster.competitors(VOLCANO)
    untouched, judged = (False, True), (True, False)
    assert await rival_cluster.requested(kinds.JOBS, job("volcano", minAvailable=99)) == untouched
    assert await rival_cluster.requested(kinds.JOBS, job("", minAvailable=99)) == untouched
    assert await rival_cluster.requested(kinds.QUEUES, WRONG_QUEUE) == untouched
    assert (
        await rival_cluster.requested(kinds.JOBS, job("stromboli", tasks=[], minAvailable=0))
        == judged
    )
    await rival_cluster.competitors()
    assert await rival_cluster.requested(kinds.JOBS, job("", tasks=[], minAvailable=0)) == judged
    assert (
        await rival_cluster.requested(kinds.JOBS, job("volcano", tasks=[], minAvailable=0))
        == judged
    )
    assert await rival_cluster.requested(kinds.QUEUES, WRONG_QUEUE) == judged


async def test_readiness_reports_the_competitor_and_the_webhooks_keep_their_endpoint(
    rival_cluster: RivalCluster,
) -> None:
    """``/readyz`` without parameters is not ready; the path in the chart decides about the
    endpoint.
    """
    match = re.search(r'\$ready := "([^"]+)"', TEMPLATE.read_text(encoding="utf-8"))
    assert match is not None
    await rival_cluster.competitors(VOLCANO)
    requested = await rival_cluster.ready()
    line = requested.json()["admission"]["competitors"]
    assert requested.status_code == 503
    for said in ("volcano-system/vc-scheduler", "vc-scheduler-7", '"volcano"', "SCHEDULER_NAMES"):
        assert said in line
    assert (await rival_cluster.ready(match[1])).status_code == 200
    rival_cluster.health.set("API server", "does not respond")
    assert (await rival_cluster.ready(match[1])).status_code == 503


async def test_objects_submitted_over_rest_are_always_validated(
    rival_cluster: RivalCluster,
) -> None:
    """REST is Stromboli's own API: its objects are always validated."""
    await rival_cluster.competitors(VOLCANO)
    answer = await rival_cluster.entry_points.rest.post(
        "/v1/check", json={"objects": [job("volcano", minAvailable=99)]}
    )
    assert answer.status_code == 422


def test_pods_of_the_system_are_sent_nowhere() -> None:
    """Not even by a resource group of their namespace: nothing waits for itself."""
    mutating, _ = webhooks.configurations(
        "https://door", b"", resource_groups=True, own_namespace="stromboli"
    )
    (of_pods,) = (it for it in mutating["webhooks"] if it["rules"][0]["resources"] == ["pods"])
    (condition,) = of_pods["matchConditions"]
    assert condition["expression"] == '!(request.namespace in ["kube-system", "stromboli"])'
    assert of_pods["failurePolicy"] == "Ignore"


def test_updates_of_finalizers_alone_are_not_sent_to_us() -> None:
    """While admission is unavailable, a deleted object loses its finalizers."""
    for configuration in webhooks.configurations("https://127.0.0.1", b""):
        for webhook in configuration["webhooks"]:
            names = {it["name"] for it in webhook["matchConditions"]}
            if "UPDATE" in webhook["rules"][0]["operations"]:
                assert names & {"more-than-finalizers", "changed"}, webhook["name"]
