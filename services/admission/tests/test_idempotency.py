"""A request with an Idempotency-Key is executed once and gets the same response each time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stromboli.admission import idempotency
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import errors, keys, topics
from stromboli.shared.api import kinds
from stromboli.shared.runtime import runtime
from stromboli.testkit.doubles import shared_rest

JOBS = "/v1/namespaces/default/jobs"
KEY = {idempotency.HEADER: "8e03978e-40d5-43e8-bc93-6894a57f9324"}


def job(name: str = "train", **metadata: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    task = {"name": "work", "replicas": 1, "template": template}
    return {"metadata": {"name": name, **metadata}, "spec": {"tasks": [task]}}


class UnavailableWriter:
    """A log that is unavailable when the answer is to be stored."""

    epoch = opened_at = 0

    async def append(self, *_: Any) -> Any:
        raise errors.UnavailableError("append", "the log is away")


@contextlib.asynccontextmanager
async def opened(folder: Path, cluster: EmbeddedCluster) -> AsyncIterator[httpx.AsyncClient]:
    """An admission service that has read its log, as after a start."""
    async with EmbeddedBus(folder / "log.db") as bus, begun(bus, cluster) as client:
        yield client


@contextlib.asynccontextmanager
async def begun(bus: EmbeddedBus, cluster: EmbeddedCluster) -> AsyncIterator[httpx.AsyncClient]:
    writer = await bus.open_writer("admission", "test")
    admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
    async with contextlib.aclosing(bus.materialize([topics.ANSWERS])) as batches:
        async for batch in batches:
            for record in batch.records:
                admission.fold(record)
            if batch.caught_up:
                break
    admission.idempotency_cache.open(writer)
    async with talking(admission, cluster) as client:
        yield client


@contextlib.asynccontextmanager
async def talking(
    admission: AdmissionService, cluster: EmbeddedCluster
) -> AsyncIterator[httpx.AsyncClient]:
    async with shared_rest.client_of(admission, cluster) as client:
        await client.post("/v1/apply", json={"objects": [QUEUE]})
        yield client


QUEUE = {
    "apiVersion": kinds.QUEUES.api_version,
    "kind": "Queue",
    "metadata": {"name": "default"},
}


async def test_a_repeated_request_gets_the_same_response_after_a_restart(
    tmp_path: Path, cluster: EmbeddedCluster
) -> None:
    """Even if the created object was changed or deleted."""
    async with opened(tmp_path, cluster) as client:
        first = await client.post(JOBS, json=job(), headers=KEY)
        again = await client.post(JOBS, json=job(), headers=KEY)
        assert (first.status_code, again.status_code) == (201, 201)
        assert first.content == again.content
        await client.delete(f"{JOBS}/train")
    async with opened(tmp_path, cluster) as client:
        late = await client.post(JOBS, json=job(), headers=KEY)
        assert (late.status_code, late.content) == (201, first.content)
        assert (await client.get(f"{JOBS}/train")).status_code == 404


async def test_a_repeated_answer_has_the_same_warnings(
    tmp_path: Path, cluster: EmbeddedCluster
) -> None:
    document = job()
    document["spec"]["plugins"] = {"ssh": ["--no-root"]}
    async with opened(tmp_path, cluster) as client:
        first = await client.post(JOBS, json=document, headers=KEY)
    async with opened(tmp_path, cluster) as client:
        again = await client.post(JOBS, json=document, headers=KEY)
    assert "--no-root: unknown, so ignored" in first.headers["warning"]
    assert first.headers["warning"] == again.headers["warning"]


async def test_a_kept_answer_has_no_literal_values_of_environment_variables(
    tmp_path: Path, cluster: EmbeddedCluster
) -> None:
    document = job()
    container = document["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "PASSWORD", "value": "s3cret"}]
    async with opened(tmp_path, cluster) as client:
        first = await client.post(JOBS, json=document, headers=KEY)
        again = await client.post(JOBS, json=document, headers=KEY)
    assert b"s3cret" in first.content
    assert again.status_code == 201
    assert b"s3cret" not in again.content
    assert b"s3cret" not in (tmp_path / "log.db").read_bytes()
    assert first.json()["metadata"] == again.json()["metadata"]


async def test_a_later_replica_knows_the_answers_of_others(
    tmp_path: Path, cluster: EmbeddedCluster
) -> None:
    """Both act: the one that opened the log later does not replace the other."""
    async with (
        EmbeddedBus(tmp_path / "log.db") as bus,
        begun(bus, cluster) as first,
        begun(bus, cluster) as second,
    ):
        await second.post(JOBS, json=job("other"), headers={idempotency.HEADER: "another"})
        response = await first.post(JOBS, json=job(), headers=KEY)
        await first.delete(f"{JOBS}/train")
    async with opened(tmp_path, cluster) as client:
        late = await client.post(JOBS, json=job(), headers=KEY)
        assert (late.status_code, late.content) == (201, response.content)
        assert (await client.get(f"{JOBS}/train")).status_code == 404


async def test_another_request_with_the_same_key_is_refused(
    tmp_path: Path, cluster: EmbeddedCluster
) -> None:
    async with opened(tmp_path, cluster) as client:
        await client.post(JOBS, json=job(), headers=KEY)
        for path, body in ((JOBS, job("other")), ("/v1/queues", {"metadata": {"name": "q"}})):
            refused = await client.post(path, json=body, headers=KEY)
            assert refused.status_code == 422
            assert refused.json()["violations"][0]["path"] == idempotency.HEADER
        assert (await client.get(f"{JOBS}/other")).status_code == 404


async def test_requests_side_by_side_make_one_job(tmp_path: Path, cluster: EmbeddedCluster) -> None:
    async with opened(tmp_path, cluster) as client:
        made = job("", generateName="train-")
        answers = await asyncio.gather(
            *(client.post(JOBS, json=made, headers=KEY) for _ in range(5))
        )
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.content for answer in answers}) == 1
        assert len((await client.get(JOBS)).json()["items"]) == 1


async def test_a_rejection_is_not_stored(tmp_path: Path, cluster: EmbeddedCluster) -> None:
    """Nothing was written: when the queue exists, the same request succeeds."""
    async with opened(tmp_path, cluster) as client:
        requirement = job()
        requirement["spec"]["queue"] = "later"
        assert (await client.post(JOBS, json=requirement, headers=KEY)).status_code == 422
        later = {**QUEUE, "metadata": {"name": "later"}}
        await client.post("/v1/apply", json={"objects": [later]})
        assert (await client.post(JOBS, json=requirement, headers=KEY)).status_code == 201


@pytest.mark.parametrize("name", ["train", ""])
async def test_an_executed_request_is_recognised_after_its_answer_was_lost(
    tmp_path: Path, cluster: EmbeddedCluster, name: str
) -> None:
    """The job was written and then the log was unavailable, or the service was killed: the repeated
    request gets 201.
    """
    made = job(name) if name else job("", generateName="train-")
    admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
    admission.idempotency_cache.open(UnavailableWriter())
    async with talking(admission, cluster) as client:
        lost = await client.post(JOBS, json=made, headers=KEY)
        assert lost.status_code == 503
    async with opened(tmp_path, cluster) as client:
        (stored,) = (await client.get(JOBS)).json()["items"]
        again = await client.post(JOBS, json=made, headers=KEY)
        assert again.status_code == 201
        assert again.json()["metadata"]["uid"] == stored["metadata"]["uid"]
        assert keys.IDEMPOTENCY in stored["metadata"]["annotations"]
        stranger = await client.post(
            JOBS, json=job("train"), headers={idempotency.HEADER: "another"}
        )
        assert stranger.status_code == (409 if name else 201)


async def test_a_command_is_created_once(tmp_path: Path, cluster: EmbeddedCluster) -> None:
    async with opened(tmp_path, cluster) as client:
        await client.post(JOBS, json=job())
        answers = [await client.post(f"{JOBS}/train/suspend", headers=KEY) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert answers[0].content == answers[1].content
        assert len((await cluster.list(kinds.COMMANDS)).items) == 1


async def test_stored_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first."""
    monkeypatch.setattr(idempotency, "MEMORY_BYTES", 100)
    kept = idempotency.IdempotencyCache(runtime.utc_now)
    kept.open(DiscardingWriter())
    work: list[str] = []

    async def answered(key: str) -> bytes:
        async def do() -> idempotency.Answer:
            work.append(key)
            return idempotency.Answer(201, b"x" * 40)

        return (await kept.answer(key, "request", do)).body

    for key in ("a", "b", "c", "a", "c"):
        await answered(key)
    assert work == ["a", "b", "c", "a"]


class DiscardingWriter:
    """A log that takes everything."""

    epoch = opened_at = 0

    async def append(self, *_: Any) -> Any:
        return ()
