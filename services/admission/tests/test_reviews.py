"""A record of every review: also of what is refused before the rules are asked, and of wishes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.admission.tests.test_ways_in import SETTINGS, Ways, opened, request
from stromboli.admission.review.service import AdmissionService
from stromboli.local.cluster import EmbeddedCluster
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.runtime import runtime
from stromboli.testkit import admission_documents
from stromboli.testkit.admission_cases import Case


@pytest.fixture
async def ways(tmp_path: Path) -> AsyncIterator[Ways]:
    async with opened(tmp_path) as made:
        yield made


class Away(EmbeddedCluster):
    """An API server that does not answer."""

    async def list(self, *_: Any, **__: Any) -> Any:
        raise errors.UnavailableError("GET queues", "refused")


def recorded(ways: Ways) -> list[Any]:
    """The reviews on their way to the log."""
    reviewed = ways.door.reviewed
    return [reviewed.get_nowait().message for _ in range(reviewed.qsize())]


async def test_what_is_refused_before_the_rules_are_asked_is_recorded(ways: Ways) -> None:
    """Each object with its own mistakes; one that has none was not judged."""
    nameless = admission_documents.job()
    del nameless["metadata"]["name"]
    objects = [{"kind": "Secret", "apiVersion": "v1"}, admission_documents.job(), nameless]
    answer = await ways.rest.post("/v1/apply", json={"objects": objects})
    assert answer.status_code == 422
    assert [
        (it.kind, it.allowed, [found.path for found in it.violations]) for it in recorded(ways)
    ] == [
        ("Secret", False, ["objects[0].kind"]),
        ("Job", False, ["objects[2].metadata.name"]),
    ]


async def test_a_kind_that_nobody_has_is_recorded_as_unknown(ways: Ways) -> None:
    answer = await ways.rest.post("/v1/apply", json={"objects": [{"kind": "X" * 10_000}]})
    assert answer.status_code == 422
    assert [it.kind for it in recorded(ways)] == ["Unknown"]


async def test_a_wish_over_rest_goes_through_the_rules_and_is_recorded(ways: Ways) -> None:
    job = admission_documents.job()
    await ways.rest.post("/v1/apply", json={"objects": [job]})
    path = "/v1/namespaces/default/jobs/train/suspend"
    assert (await ways.rest.post(path)).status_code == 202
    found = [(it.kind, it.operation, it.way, it.allowed) for it in recorded(ways)]
    assert found == [("Job", "CREATE", "rest", True), ("Command", "CREATE", "rest", True)]


async def test_a_question_that_could_not_be_judged_is_recorded_as_refused(tmp_path: Path) -> None:
    """Somebody was sent away, and may ask why."""

    door = AdmissionService(SETTINGS, Away(tmp_path / "away.db"), runtime.utc_now)
    case = Case(name="", kind=kinds.QUEUES, document=admission_documents.queue("team"))
    body = msgspec.json.encode(request(case, case.document))
    answer = msgspec.json.decode(await door.answer("/queues/validate", body))["response"]
    assert (answer["allowed"], answer["status"]["code"]) == (False, 503)
    record: Any = door.reviewed.get_nowait().message
    assert (record.object, record.allowed, record.user) == ("team", False, "ada")
