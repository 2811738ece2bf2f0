"""Both clients against a running system: the same calls, typed answers, errors as a tree."""

import asyncio
import contextlib
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from stromboli.client import AsyncClient, Client, errors, job
from stromboli.shared.api import core, flow, kinds, meta, scheduling
from stromboli.shared.api.views import accounting
from stromboli.testkit import records

TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
SPEC = {"minAvailable": 1, "tasks": [{"name": "t", "replicas": 1, "template": TEMPLATE}]}


def flow_of(name: str) -> list[meta.Object]:
    """A template and a flow of one job that is made from it."""
    metadata = meta.ObjectMeta(name=name)
    return [
        flow.JobTemplate(metadata=metadata, spec=msgspec.Raw(msgspec.json.encode(SPEC))),
        flow.JobFlow(metadata=metadata, spec=flow.JobFlowSpec(flows=(flow.Flow(name=name),))),
    ]


def test_both_clients_have_the_same_calls_with_the_same_arguments() -> None:
    def calls_of(client: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(each).parameters)
            for name, each in vars(client).items()
            if not name.startswith("_")
        }

    assert calls_of(Client) == calls_of(AsyncClient)


def test_flows_templates_and_crons_are_created_read_and_deleted_typed(url: str) -> None:
    cron = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "CronJob",
        "metadata": {"name": "typed-cron"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": SPEC}},
    }
    with Client(url) as client:
        checked = client.check(flow_of("typed-flow"))
        assert [each.result for each in checked] == ["accepted", "accepted"]
        assert list(client.workloads(kinds.JOB_FLOWS, "default")) == []
        made = client.apply([*flow_of("typed-flow"), cron])
        assert [each.result for each in made] == ["created"] * 3
        found = client.workload(kinds.JOB_FLOWS, "typed-flow")
        assert found.spec.flows[0].name == "typed-flow"
        assert client.workload(kinds.CRON_JOBS, "typed-cron").spec.schedule == "0 3 * * *"
        there: tuple[tuple[kinds.Kind[Any], str], ...] = (
            (kinds.JOB_FLOWS, "typed-flow"),
            (kinds.JOB_TEMPLATES, "typed-flow"),
            (kinds.CRON_JOBS, "typed-cron"),
        )
        for kind, name in there:
            assert [each.metadata.name for each in client.workloads(kind)] == [name]
            client.delete_workload(kind, name)
            with pytest.raises(errors.NotFoundError):
                client.delete_workload(kind, name)


GANG = scheduling.PodGroup(
    metadata=meta.ObjectMeta(name="typed-gang", namespace="default"),
    spec=scheduling.PodGroupSpec(min_member=3),
)


async def test_gangs_are_read_typed(url: str) -> None:
    async with AsyncClient(url) as client:
        await client.apply([GANG])
        assert (await client.pod_group("typed-gang")).spec.min_member == 3
        assert "typed-gang" in [each.metadata.name for each in await client.pod_groups("default")]
    with Client(url) as blocking:
        assert blocking.pod_group("typed-gang").spec.min_member == 3
        assert blocking.pod_groups("elsewhere") == []
        with pytest.raises(errors.NotFoundError):
            blocking.pod_group("none")


async def test_the_async_blockinghas_flows_queues_and_scaling_too(url: str) -> None:
    async with AsyncClient(url) as client:
        await client.apply(flow_of("awaited-flow"))
        names = [
            each.metadata.name async for each in client.workloads(kinds.JOB_TEMPLATES, "default")
        ]
        assert names == ["awaited-flow"]
        await client.workload(kinds.JOB_FLOWS, "awaited-flow")
        await client.delete_workload(kinds.JOB_FLOWS, "awaited-flow")
        await client.delete_workload(kinds.JOB_TEMPLATES, "awaited-flow")
        queue = scheduling.Queue(metadata=meta.ObjectMeta(name="awaited"))
        assert (await client.create_queue(queue)).metadata.name == "awaited"
        await client.submit(job("scaled", image="busybox", replicas=2, queue="awaited"))
        scaled = await client.scale("scaled", 3)
        assert (scaled.spec.tasks[0].replicas, scaled.spec.min_available) == (3, 3)
        with pytest.raises(errors.RejectedError, match="there is no task"):
            await client.scale("scaled", 1, task="x")
        await client.delete("scaled")
        await client.delete_queue("awaited")


def test_an_invalid_submission_is_reported_before_anything_is_sent(url: str) -> None:
    with Client(url) as client, pytest.raises(TypeError, match=r"use .*Job"):
        client.apply([core.Node()])


def test_a_job_is_submitted_typed_and_returned_complete(url: str) -> None:
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


async def test_the_async_blockingdoes_the_same(url: str) -> None:
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
    with Client(url) as client, pytest.raises(errors.RejectedError) as caught:
        client.submit(job("wrong", image="busybox", queue="nowhere", min_available=9))
    paths = {violation.path for violation in caught.value.violations}
    assert paths == {"spec.queue", "spec.minAvailable"}


def test_a_parsed_yaml_manifest_can_be_submitted(url: str) -> None:
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
    mine = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    jobs = [job(f"many-{mine}-{index}", image="busybox") for index in range(50)]
    jobs.append(job("many-wrong", image="busybox", queue="nowhere"))
    async with AsyncClient(url) as client:
        first = await client.submit_many(jobs)
        assert first.counts == {"created": 50, "refused": 1}
        assert [violation.path for violation in first.items[50].violations] == ["spec.queue"]
    with Client(url) as blocking:
        assert blocking.submit_many(jobs[:50]).counts.get("created", 0) == 0


def test_a_submission_with_a_key_may_be_repeated(url: str) -> None:
    with Client(url) as client:
        jobs = [
            client.submit(job("once", image="busybox"), idempotency_key="key-of-once")
            for _ in range(2)
        ]
        assert jobs[0].metadata.uid == jobs[1].metadata.uid


async def attempts(client: AsyncClient, query: accounting.AttemptQuery) -> list[accounting.Attempt]:
    """Three attempts that have ended, once the history has read them. It starts with its first
    query, which may end before."""
    async with asyncio.timeout(2 * records.DEADLINE_S):
        while True:
            with contextlib.suppress(errors.UnavailableError):
                found = [each async for each in client.attempts(query)]
                if [it.state for it in found] == ["Succeeded"] * 3:
                    return found


async def test_what_ran_is_found_also_after_the_job_is_gone(url: str) -> None:
    now = datetime.now(UTC)
    name = f"past-{type(asyncio.get_running_loop()).__qualname__.strip('_').lower()}"
    usage = accounting.UsageQuery(
        since=now - timedelta(hours=1), until=now + timedelta(hours=1), by=("job",)
    )
    async with AsyncClient(url) as client:
        await client.submit(job(name, image="busybox", requests={"cpu": "1"}, replicas=3))
        await client.wait(name, timeout_s=records.DEADLINE_S)
        await client.delete(name)
        query = accounting.AttemptQuery(namespace="default", job=name, limit=2)
        found = await attempts(client, query)
        report = await client.usage(usage)
        past_query = accounting.JobQuery(namespace="default", name=name)
        async with asyncio.timeout(records.DEADLINE_S):
            # Who deleted the job is of another topic than its end.
            while True:
                (past,) = [each async for each in client.past_jobs(past_query)]
                if past.requests and past.deleted_at is not None:
                    break
        lineage_query = accounting.EvictionQuery(namespace="default", job=name)
        assert [each async for each in client.evictions(lineage_query)] == []
        change_query = accounting.ChangeQuery(kind="Node", limit=1)
        changed = [each async for each in client.changes(change_query)]
        why_query = accounting.ExplanationQuery(namespace="default", job=name)
        why = await client.past_explanations(why_query)
    assert [it.attempt for it in found] == [1] * 3
    with Client(url) as blocking:
        assert len(list(blocking.attempts(query))) == 3
        assert blocking.usage(usage).usage
        assert list(blocking.past_jobs(past_query)) == [past]
        assert list(blocking.evictions(lineage_query)) == []
        assert list(blocking.changes(change_query)) == changed
        assert blocking.past_explanations(why_query) == why
    assert {it.action for it in changed} >= {"created"}
    assert all(it.namespace == "default" for it in why.explanations)
    assert [it.action for it in past.requests] == ["DeleteJob"]
    assert [it.phase for it in past.phases] == ["Pending", "Running", "Completed"]
    assert past.spec["tasks"][0]["replicas"] == 3
    (used,) = [it for it in report.usage if it.group == {"job": name}]
    assert used.cpu_seconds == pytest.approx(sum(it.cpu_seconds for it in found))
    assert used.cpu_seconds > 0
