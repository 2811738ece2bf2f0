"""Warnings for accepted fields without effect, which the API server passes to the client."""

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from services.admission.tests.test_entry_points import opened, request
from stromboli.admission.core import admission_review
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.formats import warning_header
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.admission_cases.rules import Case


@pytest.mark.parametrize(("count", "shown"), [(0, None), (1, 1), (99, warning_header.MAX_WARNINGS)])
def test_an_accepted_object_carries_warnings_as_far_as_an_api_server_passes_them_on(
    count: int, shown: int | None
) -> None:
    answer = admission_review.encode_response("u", warnings=("x" * 1000,) * count)
    warnings = msgspec.json.decode(answer)["response"].get("warnings")
    if shown is None:
        assert warnings is None
    else:
        assert [len(it) for it in warnings] == [warning_header.MAX_LENGTH] * shown


async def test_an_unknown_argument_of_a_plugin_is_a_warning(tmp_path: Path) -> None:
    document = manifests.job()
    document["spec"]["plugins"] = {"ssh": ["--no-root"]}
    body = msgspec.json.encode(request(Case(name="", kind=kinds.JOBS, document=document), document))
    async with opened(tmp_path) as entry_points:
        answer = msgspec.json.decode(await entry_points.admission.answer("/jobs/validate", body))[
            "response"
        ]
    assert answer["allowed"]
    (warning,) = answer["warnings"]
    assert warning.startswith("spec.plugins.ssh: --no-root: unknown, so ignored; known arguments: ")


@pytest.mark.parametrize("kind", [kinds.JOBS, kinds.POD_GROUPS])
async def test_a_waiting_time_without_effect_is_a_warning(tmp_path: Path, kind: Any) -> None:
    """Its author would learn it only from the scheduler's log."""
    document = manifests.job() if kind == kinds.JOBS else manifests.pod_group()
    document = manifests.annotated(document, keys.SLA_WAITING_TIME, "0s")
    path = "/jobs/validate" if kind == kinds.JOBS else "/podgroups/validate"
    body = msgspec.json.encode(request(Case(name="", kind=kind, document=document), document))
    async with opened(tmp_path) as entry_points:
        answer = msgspec.json.decode(await entry_points.admission.answer(path, body))["response"]
    assert answer["allowed"]
    (warning,) = answer["warnings"]
    assert warning.startswith(f"metadata.annotations[{keys.SLA_WAITING_TIME}]: '0s' is not above")


UNKNOWN_ARGUMENT = "spec.plugins.ssh: --no-root: unknown, so ignored; known arguments: "


def job_with_unknown_argument() -> dict[str, Any]:
    document = manifests.job()
    document["spec"]["plugins"] = {"ssh": ["--no-root"]}
    return document


async def test_a_created_job_is_answered_with_its_warnings(client: httpx.AsyncClient) -> None:
    """Without them a user of REST would not see what ``kubectl apply`` prints."""
    namespace = "/v1/namespaces/default/jobs"
    answer = await client.post(namespace, json=job_with_unknown_argument())
    assert answer.status_code == 201, answer.text
    (warning,) = warning_header.decode(answer.headers[warning_header.NAME])
    assert warning.startswith(UNKNOWN_ARGUMENT)


async def test_a_job_without_warnings_has_no_such_header(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/namespaces/default/jobs", json=manifests.job())
    assert answer.status_code == 201, answer.text
    assert warning_header.NAME not in answer.headers


async def test_each_object_of_a_bulk_has_its_warnings(client: httpx.AsyncClient) -> None:
    good = {**manifests.job(), "metadata": {"name": "good"}}
    lines = b"\n".join(map(msgspec.json.encode, (job_with_unknown_argument(), good)))
    headers = {"content-type": "application/x-ndjson"}
    answer = await client.post("/v1/bulk", content=lines, headers=headers)
    first, second = answer.json()["items"]
    assert first["warnings"][0].startswith(UNKNOWN_ARGUMENT)
    assert "warnings" not in second
