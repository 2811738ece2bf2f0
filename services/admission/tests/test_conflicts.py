"""A change that meets others' changes begins anew from what is there, and ends some time."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.admission.tests.test_rest import job
from stromboli.admission import asking, door
from stromboli.admission.settings import DoorSettings
from stromboli.local.cluster import EmbeddedCluster
from stromboli.shared import errors, runtime
from stromboli.shared.api import kinds

ASKER = asking.Anyone()


class Restless(EmbeddedCluster):
    """Somebody writes the job's status whenever it was read, ``changes`` times in all."""

    changes = 0

    async def get(self, kind: Any, namespace: str, name: str) -> bytes:
        found = await super().get(kind, namespace, name)
        if self.changes > 0:
            self.changes -= 1
            status = msgspec.json.encode({"status": {"retryCount": self.changes}})
            await self.patch(
                kind, namespace, name, status, patch_type="merge", subresource="status"
            )
        return found


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Restless]:
    async with Restless(tmp_path / "cluster.db") as made:
        yield made


async def changed(cluster: Restless, changes: int) -> None:
    """A job is made and then scaled while others write its status."""
    own = door.Door(DoorSettings(), cluster, runtime.utc_now)
    await own.submit([job(minAvailable=1)], ASKER)
    cluster.changes = changes
    await own.submit([job(minAvailable=2)], ASKER)


async def test_a_change_is_made_although_others_wrote_meanwhile(cluster: Restless) -> None:
    await changed(cluster, door.CONFLICTS)
    stored = kinds.JOBS.decode(await cluster.get(kinds.JOBS, "default", "train"))
    assert stored.spec.min_available == 2
    assert stored.status.retry_count == 0  # what they wrote last stays


async def test_a_change_against_endless_others_is_given_up(cluster: Restless) -> None:
    with pytest.raises(errors.ConflictError):
        await changed(cluster, 1_000)
