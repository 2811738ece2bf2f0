"""Unknown fields of pod templates: refused over REST and Kafka, a warning over webhooks."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.admission.auth import authentication
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.review.submitted_objects import RejectedError
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import kinds
from stromboli.shared.runtime import runtime
from stromboli.testkit.admission_cases import manifests

MEANT = {
    "template.metadata.lables": "labels",
    "template.spec.restartPolicey": "restartPolicy",
    "template.spec.containers[0].comand": "command",
    "template.spec.containers[0].resource": "resources",
}


def job() -> dict[str, Any]:
    document = manifests.job()
    template = document["spec"]["tasks"][0]["template"]
    template["metadata"] = {"lables": {"a": "b"}}
    template["spec"]["restartPolicey"] = "Never"
    template["spec"]["containers"][0] |= {"comand": ["true"], "resource": {}}
    return document


@contextlib.asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[AdmissionService]:
    async with EmbeddedCluster(folder / "cluster.db") as cluster:
        queue: dict[str, Any] = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
        queue |= {"metadata": {"name": "default"}, "status": {"state": "Open"}}
        await cluster.create(kinds.QUEUES, "", msgspec.json.encode(queue))
        yield AdmissionService(AdmissionSettings(**settings), cluster, runtime.utc_now)


def review(document: dict[str, Any], before: dict[str, Any] | None = None) -> bytes:
    group, _, version = document["apiVersion"].partition("/")
    request = {
        "uid": "1",
        "kind": {"group": group, "version": version, "kind": document["kind"]},
        "operation": "UPDATE" if before else "CREATE",
        "namespace": "default",
        "object": document,
        "oldObject": before,
    }
    return msgspec.json.encode({"request": request})


def expectations(prefix: str) -> dict[str, str]:
    return {f"{prefix}.{path}": f'did you mean "{meant}"?' for path, meant in MEANT.items()}


@pytest.mark.parametrize("entry_point", ["rest", "kafka"])
async def test_an_unknown_field_is_refused_with_its_path_and_the_field_meant(
    tmp_path: Path, entry_point: Any
) -> None:
    async with opened(tmp_path) as admission:
        with pytest.raises(RejectedError) as refused:
            await admission.submit([job()], authentication.LOCAL_PRINCIPAL, entry_point=entry_point)
    found = {each.path: each.expected for each in refused.value.violations}
    assert found == expectations("spec.tasks[0]")


def cron(spec: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "CronJob", "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}}


def flow(spec: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "JobFlow", "spec": {"flows": [{"name": "a", "patch": {"jobSpec": spec}}]}}


@pytest.mark.parametrize(
    ("kind", "made", "prefix"),
    [
        (kinds.CRON_JOBS, cron, "spec.jobTemplate.spec.tasks[0]"),
        (kinds.JOB_FLOWS, flow, "spec.flows[0].patch.jobSpec.tasks[0]"),
        (kinds.JOB_TEMPLATES, lambda spec: {"spec": spec}, "spec.tasks[0]"),
    ],
)
async def test_templates_in_crons_flows_and_job_templates_are_checked_the_same(
    tmp_path: Path, kind: kinds.Kind[Any], made: Callable[..., dict[str, Any]], prefix: str
) -> None:
    document = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "a"},
        **made(job()["spec"]),
    }
    async with opened(tmp_path) as admission:
        with pytest.raises(RejectedError) as refused:
            await admission.submit([document], authentication.LOCAL_PRINCIPAL)
    found = {each.path: each.expected for each in refused.value.violations}
    assert found == expectations(prefix)


async def test_an_unknown_field_is_a_warning_if_so_configured(tmp_path: Path) -> None:
    async with opened(tmp_path, unknown_fields="warn") as admission:
        for submit in (admission.check, admission.submit):
            (applied,) = await submit([job()], authentication.LOCAL_PRINCIPAL)
            assert set(applied.warnings) == {
                f"{path}: unknown field; {expected}"
                for path, expected in expectations("spec.tasks[0]").items()
            }


async def test_a_webhook_answers_an_unknown_field_with_a_warning(tmp_path: Path) -> None:
    async with opened(tmp_path) as admission:
        answer = await admission.answer("/jobs/validate", review(job()))
    response = msgspec.json.decode(answer)["response"]
    assert response["allowed"]
    assert len(response["warnings"]) == len(MEANT)


async def test_a_webhook_rejects_an_unknown_field_if_so_configured(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, webhook_unknown_fields="reject") as admission:
        answer = await admission.answer("/jobs/validate", review(job()))
    response = msgspec.json.decode(answer)["response"]
    assert not response["allowed"]
    assert 'did you mean "restartPolicy"?' in response["status"]["message"]


async def test_a_change_of_a_stored_object_is_not_refused_for_fields_it_has_already(
    tmp_path: Path,
) -> None:
    stored = job()
    changed = msgspec.json.decode(msgspec.json.encode(stored))
    changed["metadata"]["labels"] = {"a": "b"}
    async with opened(tmp_path, webhook_unknown_fields="reject") as admission:
        answer = await admission.answer("/jobs/validate", review(changed, stored))
    assert msgspec.json.decode(answer)["response"]["allowed"]


async def test_jobs_of_another_scheduler_get_no_warning(tmp_path: Path) -> None:
    document = job()
    document["spec"]["schedulerName"] = "other"
    async with opened(tmp_path) as admission:
        answer = await admission.answer("/jobs/validate", review(document))
    assert "warnings" not in msgspec.json.decode(answer)["response"]
