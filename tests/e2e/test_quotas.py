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
    """The numbers of the quota's rejection are reported, no pod of the gang runs without the
    others, and the job continues when the quota is raised. The reason is stored on the job, so that
    it remains when an API server has deleted its Events.
    """
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
