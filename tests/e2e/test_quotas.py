"""A namespace's quota in a running system."""

from pathlib import Path

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.testkit import objects
from tests.e2e.support import configured_system as cells

TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: proportion}]
"""
QUOTAS = kinds.RESOURCE_QUOTAS


async def test_a_job_waits_until_its_namespaces_quota_has_room(tmp_path: Path) -> None:
    """What the quota refuses is said with its numbers, no pod of the gang runs without the others,
    and when the quota is raised the job goes on by itself. What it waits for stands on the job, so
    that it is known when an API server has forgotten its Events."""
    async with cells.running(tmp_path, "enqueue, allocate", TIERS) as cell:
        quota = objects.make(QUOTAS, "small", spec={"hard": {"requests.cpu": "2"}})
        await cell.cluster.create(QUOTAS, "default", quota)
        await cell.submit("wide", 4)

        async def said() -> str:
            events = await cell.cluster.list(kinds.EVENTS, "default")
            return " ".join(raw.decode() for raw in events.items)

        refused = "exceeded quota: small, requested: requests.cpu=1, used: requests.cpu=2"
        await cell.until(said, lambda reported: refused in reported)
        assert [pod["spec"].get("nodeName") for pod in await cell.pods("wide")] == [None, None]

        async def noted() -> str:
            return (
                kinds.metadata_of(await cell.cluster.get(kinds.JOBS, "default", "wide")).annotation(
                    keys.HELD
                )
                or ""
            )

        await cell.until(noted, lambda text: text.startswith("FailedCreate: ") and refused in text)
        raised = objects.merge(spec={"hard": {"requests.cpu": "4"}})
        await cell.cluster.patch(QUOTAS, "default", "small", raised, patch_type="merge")
        assert await cell.nodes_of("wide", 4)
        await cell.until(noted, lambda text: not text)
