"""Both clients against a running system: the same calls, typed answers, errors as a tree."""

import pytest

from stromboli.client import AsyncClient, Client, errors, job


def test_a_job_goes_in_typed_and_comes_back_complete(url: str) -> None:
    with Client(url) as client:
        stored = client.submit(job("typed", image="busybox", replicas=2, requests={"cpu": "1"}))
        assert stored.spec.min_available == 2
        assert stored.metadata.uid == client.job("typed").metadata.uid
        assert "typed" in {found.metadata.name for found in client.jobs("default")}
        assert client.explanation("typed").job == "default/typed"
        assert client.queue("default").metadata.name == "default"
        assert {queue.metadata.name for queue in client.queues()} >= {"default", "root"}
        client.delete("typed")
        with pytest.raises(errors.NotFoundError):
            client.job("typed")


async def test_the_async_client_does_the_same(url: str) -> None:
    async with AsyncClient(url) as client:
        stored = await client.submit(job("awaited", image="busybox"))
        assert stored.metadata.uid == (await client.job("awaited")).metadata.uid
        assert "awaited" in {found.metadata.name async for found in client.jobs("default")}
        is_ready, _ = await client.readiness()
        assert is_ready
        await client.delete("awaited")
        with pytest.raises(errors.NotFoundError):
            await client.job("awaited")


def test_a_wrong_job_is_refused_with_its_mistakes(url: str) -> None:
    with Client(url) as client, pytest.raises(errors.RefusedError) as caught:
        client.submit(job("wrong", image="busybox", queue="nowhere", min_available=9))
    paths = {violation.path for violation in caught.value.violations}
    assert paths == {"spec.queue", "spec.minAvailable"}


def test_a_manifest_as_yaml_has_it_goes_in_too(url: str) -> None:
    container = {"name": "c", "image": "busybox"}
    manifest = {
        "metadata": {"name": "manifest"},
        "spec": {"tasks": [{"replicas": 1, "template": {"spec": {"containers": [container]}}}]},
    }
    with Client(url) as client:
        assert client.submit(manifest).spec.tasks[0].replicas == 1
        client.delete("manifest")


def test_a_server_that_is_not_there_is_unreachable() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(errors.UnreachableError):
        client.job("any")


async def test_many_jobs_go_in_with_a_result_for_each(url: str) -> None:
    """One that is wrong keeps no other out, and all may be sent again as they are."""
    jobs = [job(f"many-{index}", image="busybox") for index in range(50)]
    jobs.append(job("many-wrong", image="busybox", queue="nowhere"))
    async with AsyncClient(url) as client:
        first = await client.submit_many(jobs)
        assert first.counts == {"created": 50, "refused": 1}
        assert [violation.path for violation in first.items[50].violations] == ["spec.queue"]
    with Client(url) as blocking:
        assert blocking.submit_many(jobs[:50]).counts.get("created", 0) == 0


def test_a_submission_with_a_key_may_be_repeated(url: str) -> None:
    with Client(url) as client:
        made = [
            client.submit(job("once", image="busybox"), idempotency_key="key-of-once")
            for _ in range(2)
        ]
        assert made[0].metadata.uid == made[1].metadata.uid
