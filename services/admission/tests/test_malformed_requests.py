"""Malicious bodies: each gets a quick response with its errors."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from services.admission.tests.test_entry_points import JSON, EntryPoints, opened, request
from stromboli.admission.core import review_records
from stromboli.shared.api import kinds
from stromboli.shared.jobspec.validation import patch
from stromboli.testkit import cpu_time
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.admission_cases.rules import Case

DEPTHS = (patch.MAX_DEPTH, 900, 20_000)
"""Beyond what we read, beyond what Python copies, beyond what Python reads."""
PLACES = ('"image":"busybox"', '"metadata":{', '"schedulerName":"volcano"')
QUANTITIES = ("1e999999999", "-1e999999999", "1e-999999999", "9" * 100_000, "1\n", "\uff11")


@pytest.fixture
async def entry_points(tmp_path: Path) -> AsyncIterator[EntryPoints]:
    async with opened(tmp_path) as made:
        yield made


def bodies(document: bytes) -> Iterator[tuple[str, bytes]]:
    """Everywhere that REST takes an object, and the object as it is taken there."""
    yield "/v1/apply", b'{"objects":[' + document + b"]}"
    yield "/v1/check", b'{"objects":[' + document + b"]}"
    yield "/v1/namespaces/default/jobs", document
    yield "/v1/bulk", document


async def requested(entry_points: EntryPoints, document: bytes) -> list[tuple[str, int, str]]:
    """Path, status and text of every answer to the object, webhooks' first."""
    case = Case(name="", kind=kinds.JOBS, document={})
    review = msgspec.json.encode(request(case, "@")).replace(b'"@"', document)
    found = []
    for action in ("validate", "mutate"):
        answer = await entry_points.webhooks.post(f"/jobs/{action}", content=review, headers=JSON)
        found.append((f"/jobs/{action}", answer.status_code, answer.text))
    for path, body in bodies(document):
        answer = await entry_points.rest.post(path, content=body, headers=JSON)
        status = answer.status_code
        if path == "/v1/bulk" and answer.is_success:
            status = answer.json()["items"][0].get("status", 200)
        found.append((path, status, answer.text))
    return found


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("depth", DEPTHS)
async def test_deeply_nested_bodies_are_rejected_without_recursion(
    entry_points: EntryPoints, depth: int, place: str
) -> None:
    nest = b'{"a":' * depth + b"1" + b"}" * depth
    whole = msgspec.json.encode(manifests.job())
    added = place.encode() + (b'"x":' if place.endswith("{") else b',"x":') + nest
    document = whole.replace(place.encode(), added + (b"," if place.endswith("{") else b""), 1)
    for path, status, text in await requested(entry_points, document):
        if path == "/jobs/mutate" and status == 200:
            assert "patch" not in text  # what cannot be read is not completed: validate refuses it
        elif path == "/jobs/validate" and status == 200:
            assert "nested too deeply" in text
        else:
            assert status in (400, 422), (path, text)


async def test_bytes_that_are_no_utf_8_are_refused(entry_points: EntryPoints) -> None:
    for wrong in (b"tr\xff\xfein", b"tr\xc3\x28in"):
        document = msgspec.json.encode(manifests.job()).replace(b"train", wrong)
        for path, status, text in await requested(entry_points, document):
            assert status == 400, (path, text)


@pytest.mark.parametrize("quantity", QUANTITIES)
async def test_no_quantity_takes_long_to_parse(entry_points: EntryPoints, quantity: str) -> None:
    """Some count as as much as Kubernetes counts, others are refused."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": quantity}}}
    task = manifests.task(template={"spec": {"containers": [container]}})
    document = manifests.job(tasks=[task])
    for path, status, text in await requested(entry_points, msgspec.json.encode(document)):
        assert status in (200, 201, 409, 422), (path, text)
    queue = manifests.queue("team", capability={"cpu": quantity})
    answer = await entry_points.rest.post("/v1/check", json={"objects": [queue]})
    assert answer.status_code in (200, 422), answer.text


async def test_a_thousand_violations_are_reported_in_bounded_space(
    entry_points: EntryPoints,
) -> None:
    """The first thousand, and the number of the others; the record fits the log in all cases."""
    name = "X" * 2_000_000
    tasks = [{"name": "t", "dependsOn": {"name": [name[:10]]}} for _ in range(1_000)]
    document: Any = manifests.job(name=name, tasks=tasks)
    answer = await entry_points.rest.post("/v1/check", json={"objects": [document]})
    seen = answer.json()["violations"]
    assert answer.status_code == 422
    assert len(seen) == review_records.MAX_REPORTED + 1
    assert "more violations" in seen[-1]["reason"]
    assert len(answer.content) < 1024 * 1024
    await entry_points.rest.post("/v1/apply", json={"objects": [document]})
    draft = entry_points.admission.pending_reviews.get_nowait()
    assert len(draft.key) + len(msgspec.json.encode(draft.message)) < 256 * 1024


async def test_a_manifest_lists_names_without_repeating_all_of_them(
    entry_points: EntryPoints,
) -> None:
    tasks = [manifests.task(name=f"t{number}", dependsOn={"name": ["x"]}) for number in range(500)]
    document = manifests.job(tasks=tasks, minAvailable=0)
    answer = await entry_points.rest.post("/v1/check", json={"objects": [document]})
    wrong = answer.json()["violations"]
    assert {item["path"] for item in wrong} == {
        f"spec.tasks[{number}].dependsOn.name" for number in range(500)
    }
    assert wrong[0]["expected"].endswith("and 489 more")


async def test_reviews_of_large_jobs_do_not_block_other_requests(entry_points: EntryPoints) -> None:
    """They are reviewed in a thread: the loop itself never computes for long."""
    tasks = [
        {"name": f"T_{number}", "template": {"spec": {"containers": [{"name": "c"}]}}}
        for number in range(1_000)
    ]
    document = manifests.job(tasks=tasks, policies=[{"event": "x"}] * 5_000)

    async def answers() -> list[httpx.Response]:
        post, body = entry_points.rest.post, {"objects": [document]}
        return await asyncio.gather(*(post("/v1/check", json=body) for _ in range(8)))

    answered, longest_s = await cpu_time.longest_turn_s(answers, enough_s=1.0)
    assert {answer.status_code for answer in answered} == {422}
    assert longest_s <= 1.0


@pytest.mark.parametrize("path", ["/v1/apply", "/v1/check"])
async def test_a_request_has_a_limited_number_of_objects(
    entry_points: EntryPoints, path: str
) -> None:
    """A body of 3 MiB has room for a million empty objects, each with its own violation."""
    body = b'{"objects":[' + b"{}," * 500_000 + b"{}]}"
    post = functools.partial(entry_points.rest.post, path, content=body, headers=JSON)
    answer, longest_s = await cpu_time.longest_turn_s(post, enough_s=5)
    assert longest_s <= 5
    assert answer.status_code == 422
    (violation,) = answer.json()["violations"]
    assert violation == {
        "path": "objects",
        "reason": "500001 objects in one request",
        "expected": "at most 1000; POST /v1/bulk takes more, each on its own",
    }


async def test_a_long_kind_is_refused_quickly(entry_points: EntryPoints) -> None:
    objects = [{"apiVersion": "v1", "kind": "Jo" * 1_400_000}]
    post = functools.partial(entry_points.rest.post, "/v1/check", json={"objects": objects})
    answer, longest_s = await cpu_time.longest_turn_s(post, enough_s=0.25)
    assert longest_s <= 0.25
    assert answer.status_code == 422
