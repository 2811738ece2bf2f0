"""Who deletes, changes or commands a job is recorded, over REST and by the webhooks of kubectl."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.admission.tests.test_entry_points import EntryPoints, opened
from stromboli.admission.core import job_requests
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import kinds
from stromboli.shared.messages.admission import JobRequested
from stromboli.shared.runtime import runtime
from stromboli.testkit.admission_cases import manifests

JOB = "/v1/namespaces/default/jobs/train"
CONTROLLER = "system:serviceaccount:stromboli:controller"


@pytest.fixture
async def entry_points(tmp_path: Path) -> AsyncIterator[EntryPoints]:
    async with opened(tmp_path) as made:
        await made.rest.post("/v1/apply", json={"objects": [manifests.job()]})
        yield made


@pytest.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[AdmissionService]:
    """Admission that knows the service account of the controller."""
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        settings = AdmissionSettings(service_accounts=(CONTROLLER,))
        yield AdmissionService(settings, cluster, runtime.utc_now)


def requested(admission: AdmissionService) -> list[JobRequested]:
    """The requests about jobs on their way to the log."""
    pending = admission.pending_reviews
    drafts = [pending.get_nowait() for _ in range(pending.qsize())]
    assert all(it.key == it.message.job for it in drafts if isinstance(it.message, JobRequested))
    return [it.message for it in drafts if isinstance(it.message, JobRequested)]


async def uid_of(entry_points: EntryPoints) -> str:
    raw = await entry_points.cluster.get(kinds.JOBS, "default", "train")
    return kinds.JOBS.decode(raw).metadata.uid


async def test_a_deletion_over_rest_is_recorded_with_its_user(entry_points: EntryPoints) -> None:
    uid = await uid_of(entry_points)
    assert (await entry_points.rest.delete(JOB)).status_code == 204
    (request,) = requested(entry_points.admission)
    assert (request.job, request.uid, request.action) == ("default/train", uid, "DeleteJob")
    assert (request.user, request.entry_point) == ("rest", "rest")


async def test_a_deletion_that_fails_is_not_recorded(entry_points: EntryPoints) -> None:
    assert (await entry_points.rest.delete(f"{JOB}-absent")).status_code == 404
    assert requested(entry_points.admission) == []


async def test_a_command_over_rest_is_recorded_with_the_job_it_is_for(
    entry_points: EntryPoints,
) -> None:
    uid = await uid_of(entry_points)
    assert (await entry_points.rest.post(f"{JOB}/suspend")).status_code == 202
    (request,) = requested(entry_points.admission)
    assert (request.job, request.uid, request.action) == ("default/train", uid, "AbortJob")
    assert request.subject.startswith("train-abortjob-")


async def test_a_change_over_rest_is_recorded_with_the_fields_that_it_changes(
    entry_points: EntryPoints,
) -> None:
    change = {"replicas": {"work": 3}, "activeDeadlineSeconds": 60}
    answer = await entry_points.rest.patch(JOB, json=change)
    assert answer.status_code == 200, answer.text
    (request,) = requested(entry_points.admission)
    assert request.action == "ChangeJob"
    assert "activeDeadlineSeconds none -> 60" in request.detail
    assert "replicas of task work 2 -> 3" in request.detail


def test_changes_of_tasks_are_listed_in_the_order_of_the_job() -> None:
    names = ["master", "worker", "ps", "evaluator", "chief", "logger"]
    before = manifests.job()
    before["metadata"] |= {"uid": "u1", "namespace": "default"}
    before["spec"]["tasks"] = [{"name": name, "replicas": 1} for name in names]
    changed = msgspec.json.decode(msgspec.json.encode(before))
    for task in changed["spec"]["tasks"]:
        task["replicas"] = 2
    request = job_requests.written(kinds.JOBS, changed, before, "ada", "rest")
    assert request is not None
    assert request.detail == ", ".join(f"replicas of task {name} 1 -> 2" for name in names)


def test_a_change_of_labels_is_no_request_and_values_of_a_template_are_not_quoted() -> None:
    before = manifests.job()
    before["metadata"] |= {"uid": "u1", "namespace": "default", "resourceVersion": "7"}
    labelled = {**before, "metadata": {**before["metadata"], "labels": {"team": "a"}}}
    assert job_requests.written(kinds.JOBS, labelled, before, "ada", "webhook") is None
    changed = msgspec.json.decode(msgspec.json.encode(before))
    env = [{"name": "TOKEN", "value": "secret"}]
    changed["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"] = env
    request = job_requests.written(kinds.JOBS, changed, before, "ada", "webhook")
    assert request is not None
    assert (request.subject, request.detail) == ("7", "tasks")


@pytest.mark.parametrize("field", ["name", "uid"])
def test_a_command_for_a_job_that_cannot_exist_is_not_recorded(field: str) -> None:
    """Its name and uid would be megabytes of a record."""
    target = {"kind": "Job", "name": "train", "uid": "u1"}
    metadata = {"name": "stop", "namespace": "default"}
    command = {"metadata": metadata, "action": "AbortJob", "target": target}
    assert job_requests.written(kinds.COMMANDS, command, None, "ada", "webhook") is not None
    target[field] = "x" * 254
    assert job_requests.written(kinds.COMMANDS, command, None, "ada", "webhook") is None


def deletion(user: str, **more: Any) -> bytes:
    """The request of an API server whose user deletes the job."""
    job = manifests.job()
    job["metadata"] |= {"uid": "u1", "namespace": "default"}
    return review(kinds.JOBS, "DELETE", user, **({"oldObject": job} | more))


def review(kind: kinds.Kind[Any], operation: str, user: str, **more: Any) -> bytes:
    named = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    asked = {"uid": "r", "kind": named, "operation": operation, "namespace": "default"}
    return msgspec.json.encode(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": asked | {"userInfo": {"username": user}} | more,
        }
    )


async def test_a_deletion_with_kubectl_is_recorded_and_always_allowed(
    webhook: AdmissionService,
) -> None:
    answer = msgspec.json.decode(await webhook.answer("/jobs/record", deletion("ada")))
    assert answer["response"]["allowed"]
    (request,) = requested(webhook)
    assert (request.job, request.uid, request.action) == ("default/train", "u1", "DeleteJob")
    assert (request.user, request.entry_point) == ("ada", "webhook")


@pytest.mark.parametrize(
    "body",
    [deletion(CONTROLLER), deletion("ada", dryRun=True), deletion("ada", oldObject=None)],
    ids=["by the controller", "as a dry run", "of an object that is not in the request"],
)
async def test_other_deletions_are_allowed_and_not_recorded(
    webhook: AdmissionService, body: bytes
) -> None:
    answer = msgspec.json.decode(await webhook.answer("/jobs/record", body))
    assert answer["response"]["allowed"]
    assert requested(webhook) == []


async def test_a_command_with_kubectl_is_recorded_once_it_is_admitted(
    webhook: AdmissionService,
) -> None:
    target = {"apiVersion": kinds.JOBS.api_version, "kind": "Job", "name": "train", "uid": "u1"}
    metadata = {"name": "c1", "namespace": "default"}
    for action in ("AbortJob", "DanceJob"):
        command = {"metadata": metadata, "action": action, "target": target}
        await webhook.answer(
            "/commands/validate", review(kinds.COMMANDS, "CREATE", "ada", object=command)
        )
    (request,) = requested(webhook)
    assert (request.job, request.uid, request.action) == ("default/train", "u1", "AbortJob")
    assert (request.user, request.subject) == ("ada", "c1")


def test_deletions_are_sent_to_us_and_do_not_wait_for_us() -> None:
    """While admission is unavailable, jobs are deleted all the same."""
    _, validating = webhooks.configurations("https://127.0.0.1", b"", service_accounts=["ours"])
    deleting = [
        it
        for it in validating["webhooks"]
        if it["rules"][0]["resources"] == ["jobs"] and it["rules"][0]["operations"] == ["DELETE"]
    ]
    (found,) = deleting
    assert found["failurePolicy"] == "Ignore"
    assert found["timeoutSeconds"] == 1
    conditions = [it["expression"] for it in found["matchConditions"]]
    assert conditions == [
        'oldObject.?spec.?schedulerName.orValue(\'\') in ["", "volcano", "stromboli"]',
        '!(request.userInfo.username in ["ours"])',
    ]
