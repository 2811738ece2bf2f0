"""Thousands of objects in one request: a result for each, and little memory."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.admission.rest import bulk
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import kinds

PATH = "/v1/bulk"


def job(name: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    task = {"name": "work", "replicas": 1, "template": template}
    metadata = {"name": name} if name else {"generateName": "made-"}
    return {
        "apiVersion": kinds.JOBS.api_version,
        "kind": "Job",
        "metadata": metadata,
        "spec": {"tasks": [task], **spec},
    }


def queue(name: str) -> dict[str, Any]:
    return {
        "apiVersion": kinds.QUEUES.api_version,
        "kind": "Queue",
        "metadata": {"name": name},
    }


async def sent(client: httpx.AsyncClient, *documents: Any, **headers: str) -> dict[str, Any]:
    body = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in documents)
    headers |= {"content-type": "application/x-ndjson"}
    answer = await client.post(PATH, content=body.encode(), headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_each_line_has_its_own_result(client: httpx.AsyncClient) -> None:
    """An invalid line does not block the others, and all its errors are listed with their paths."""
    found = await sent(
        client,
        job("good"),
        "",
        job("bad", minAvailable=9, queue="nowhere"),
        "{nonsense",
        "[]",
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}},
        job("good"),
    )
    results = [(item["index"], item["result"]) for item in found["items"]]
    assert results[:1] == [(0, "created")]
    assert [result for _, result in results[1:5]] == ["refused"] * 4
    assert {each["path"] for each in found["items"][1]["violations"]} == {
        "spec.minAvailable",
        "spec.queue",
    }
    assert [item.get("status", 200) for item in found["items"]][1:5] == [422, 400, 400, 422]
    assert found["items"][0]["uid"]
    assert found["counts"]["refused"] == 4


async def test_a_queue_is_created_before_the_jobs_after_it(client: httpx.AsyncClient) -> None:
    found = await sent(client, queue("team"), *(job(f"j{n}", queue="team") for n in range(40)))
    assert found["counts"] == {"created": 41}


async def test_an_interrupted_bulk_request_can_be_repeated(
    client: httpx.AsyncClient, cluster: EmbeddedCluster
) -> None:
    """Existing objects are unchanged, and with a key the generated names are the same again."""
    jobs = [job("named"), job(""), job("")]
    key = {"Idempotency-Key": "k"}
    first = await sent(client, *jobs, **key)
    again = await sent(client, *jobs, **key)
    assert (first["counts"], again["counts"]) == ({"created": 3}, {"unchanged": 3})
    assert [item["name"] for item in first["items"]] == [item["name"] for item in again["items"]]
    assert len((await cluster.list(kinds.JOBS)).items) == 3


async def test_lines_beyond_the_limits_are_reported_and_not_kept_in_memory(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MAX_ITEMS", 2)
    monkeypatch.setattr(bulk, "LINE_BYTES", 1000)
    found = await sent(client, '"' + "x" * 5000 + '"', job("a"), job("b"), job("c"))
    assert [item["result"] for item in found["items"]] == ["refused", "created"]
    assert (found["items"][0]["status"], found["unread"]) == (413, 2)


async def test_thousands_of_jobs_are_submitted_in_one_request(client: httpx.AsyncClient) -> None:
    found = await sent(client, *(job(f"many-{number:04d}") for number in range(2000)))
    assert found["counts"] == {"created": 2000}
    assert [item["index"] for item in found["items"]] == list(range(2000))


@given(
    lines=st.lists(st.binary(max_size=6).map(lambda raw: raw.replace(b"\n", b"")), max_size=6),
    cuts=st.lists(st.integers(0, 40), max_size=6),
)
async def test_lines_are_complete_however_chunks_are_cut(
    lines: list[bytes], cuts: list[int]
) -> None:
    body = b"\n".join(lines)
    ends = sorted({min(cut, len(body)) for cut in cuts} | {len(body)})

    async def chunks() -> AsyncIterator[bytes]:
        begin = 0
        for end in ends:
            yield body[begin:end]
            begin = end

    found = [line async for line in bulk.lines(chunks())]
    assert found == [line.strip() for line in lines if line.strip()]
