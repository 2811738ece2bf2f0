"""A conflicting change is repeated from the current object, a limited number of times."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.admission.tests.test_rest import job
from stromboli.admission.auth import authentication
from stromboli.admission.review import service
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.messages import admission
from stromboli.shared.runtime import runtime

PRINCIPAL = authentication.LocalPrincipal()


class ConflictingCluster(EmbeddedCluster):
    """Another client writes the job's status after each read, ``changes`` times in all."""

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
async def cluster(tmp_path: Path) -> AsyncIterator[ConflictingCluster]:
    async with ConflictingCluster(tmp_path / "cluster.db") as conflicting_cluster:
        yield conflicting_cluster


async def changed(own: service.AdmissionService, cluster: ConflictingCluster, changes: int) -> None:
    """A job is made and then scaled while others write its status."""
    await own.submit([job(minAvailable=1)], PRINCIPAL)
    cluster.changes = changes
    await own.submit([job(minAvailable=2)], PRINCIPAL)


def recorded(own: service.AdmissionService) -> list[tuple[str, str]]:
    """Operations and objects of reviews on their way to the log."""
    found: list[Any] = [
        own.pending_reviews.get_nowait().message for _ in range(own.pending_reviews.qsize())
    ]
    reviews = (each for each in found if isinstance(each, admission.ObjectReviewed))
    return [(message.operation, message.object) for message in reviews]


@pytest.fixture
def own(cluster: ConflictingCluster) -> service.AdmissionService:
    return service.AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)


async def test_a_change_succeeds_despite_concurrent_writes(
    own: service.AdmissionService, cluster: ConflictingCluster
) -> None:
    await changed(own, cluster, service.MAX_CONFLICT_RETRIES)
    stored = kinds.JOBS.decode(await cluster.get(kinds.JOBS, "default", "train"))
    assert stored.spec.min_available == 2
    assert stored.status.retry_count == 0  # what they wrote last stays


async def test_a_change_fails_after_repeated_conflicts(
    own: service.AdmissionService, cluster: ConflictingCluster
) -> None:
    with pytest.raises(errors.ConflictError):
        await changed(own, cluster, 1_000)


@pytest.mark.parametrize("changes", [0, service.MAX_CONFLICT_RETRIES, 1_000])
async def test_a_request_is_one_review_however_often_it_is_retried(
    own: service.AdmissionService, cluster: ConflictingCluster, changes: int
) -> None:
    with contextlib.suppress(errors.ConflictError):
        await changed(own, cluster, changes)
    assert recorded(own) == [("CREATE", "default/train"), ("UPDATE", "default/train")]


async def test_objects_written_before_a_conflict_keep_their_result(
    own: service.AdmissionService, cluster: ConflictingCluster
) -> None:
    """The new job is made once, and neither its review nor its answer becomes that of a change."""
    await own.submit([job(minAvailable=1)], PRINCIPAL)
    cluster.changes = 2
    fresh = job()
    fresh["metadata"] = {**fresh["metadata"], "name": "fresh"}
    seen = await own.submit([fresh, job(minAvailable=2)], PRINCIPAL)
    assert [(each.name, each.result) for each in seen] == [
        ("fresh", "created"),
        ("train", "configured"),
    ]
    assert recorded(own)[1:] == [("CREATE", "default/fresh"), ("UPDATE", "default/train")]


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_a_change_of_an_object_that_changed_since_it_was_read_is_refused(
    own: service.AdmissionService, cluster: ConflictingCluster, field: str
) -> None:
    """A client that sends what it read would overwrite the change of another one."""
    await own.submit([job(minAvailable=1)], PRINCIPAL)
    stale = job(minAvailable=2)
    stale["metadata"][field] = "1"
    with pytest.raises(errors.ConflictError, match="changed since it was read"):
        await own.submit([stale], PRINCIPAL)
    stored = kinds.JOBS.decode(await cluster.get(kinds.JOBS, "default", "train"))
    assert stored.spec.min_available == 1
    current = job(minAvailable=2)
    current["metadata"]["resourceVersion"] = stored.metadata.resource_version
    (applied,) = await own.submit([current], PRINCIPAL)
    assert applied.result == "configured"
