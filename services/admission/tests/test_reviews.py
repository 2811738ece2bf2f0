"""A record of every review: also of objects that are rejected before validation, and of
commands.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.admission.tests.test_entry_points import SETTINGS, EntryPoints, opened, request
from stromboli.admission.review.service import AdmissionService
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.messages.admission import ObjectReviewed
from stromboli.shared.runtime import runtime
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.admission_cases.rules import Case


@pytest.fixture
async def entry_points(tmp_path: Path) -> AsyncIterator[EntryPoints]:
    async with opened(tmp_path) as made:
        yield made


class UnavailableCluster(EmbeddedCluster):
    """An API server that does not answer."""

    async def list(self, *_: Any, **__: Any) -> Any:
        raise errors.UnavailableError("GET queues", "refused")


def recorded(entry_points: EntryPoints) -> list[Any]:
    """The reviews on their way to the log."""
    pending_reviews = entry_points.admission.pending_reviews
    found = [pending_reviews.get_nowait().message for _ in range(pending_reviews.qsize())]
    return [it for it in found if isinstance(it, ObjectReviewed)]


async def test_a_rejection_before_validation_is_recorded(
    entry_points: EntryPoints,
) -> None:
    """Each object with its own errors; one without errors was not validated."""
    nameless = manifests.job()
    del nameless["metadata"]["name"]
    objects = [{"kind": "Secret", "apiVersion": "v1"}, manifests.job(), nameless]
    answer = await entry_points.rest.post("/v1/apply", json={"objects": objects})
    assert answer.status_code == 422
    assert [
        (it.kind, it.allowed, [found.path for found in it.violations])
        for it in recorded(entry_points)
    ] == [
        ("Secret", False, ["objects[0].kind"]),
        ("Job", False, ["objects[2].metadata.name"]),
    ]


async def test_an_unknown_kind_is_recorded_as_unknown(entry_points: EntryPoints) -> None:
    answer = await entry_points.rest.post("/v1/apply", json={"objects": [{"kind": "X" * 10_000}]})
    assert answer.status_code == 422
    assert [it.kind for it in recorded(entry_points)] == ["Unknown"]


async def test_a_command_over_rest_is_validated_and_recorded(
    entry_points: EntryPoints,
) -> None:
    job = manifests.job()
    await entry_points.rest.post("/v1/apply", json={"objects": [job]})
    path = "/v1/namespaces/default/jobs/train/suspend"
    assert (await entry_points.rest.post(path)).status_code == 202
    found = [(it.kind, it.operation, it.entry_point, it.allowed) for it in recorded(entry_points)]
    assert found == [("Job", "CREATE", "rest", True), ("Command", "CREATE", "rest", True)]


async def test_a_review_that_failed_is_recorded_as_rejected(tmp_path: Path) -> None:
    """The user gets a rejection and may want to know the reason."""

    admission = AdmissionService(
        SETTINGS, UnavailableCluster(tmp_path / "away.db"), runtime.utc_now
    )
    case = Case(name="", kind=kinds.QUEUES, document=manifests.queue("team"))
    body = msgspec.json.encode(request(case, case.document))
    answer = msgspec.json.decode(await admission.answer("/queues/validate", body))["response"]
    assert (answer["allowed"], answer["status"]["code"]) == (False, 503)
    record: Any = admission.pending_reviews.get_nowait().message
    assert (record.object, record.allowed, record.user) == ("team", False, "ada")
