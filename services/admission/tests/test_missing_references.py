"""References to objects that do not exist are rejected immediately, at every entry point."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from stromboli.admission.review import listings
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.doubles import shared_rest

CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}


def cron(job: dict[str, Any]) -> dict[str, Any]:
    spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": job["spec"]}}
    return manifests.bare_object(kinds.CRON_JOBS, "nightly", spec=spec)


def pod_priority(job: dict[str, Any]) -> dict[str, Any]:
    job["spec"]["tasks"][0]["template"]["spec"]["priorityClassName"] = "urgent"
    return job


OF_JOB = manifests.job(priorityClassName="urgent")
OF_POD = pod_priority(manifests.job())
CASES = [
    (OF_JOB, "spec.priorityClassName"),
    (OF_POD, "spec.tasks[0].template.spec.priorityClassName"),
    (cron(OF_JOB), "spec.jobTemplate.spec.priorityClassName"),
]


async def checked(
    admission: AdmissionService, cluster: Any, *objects: dict[str, Any]
) -> httpx.Response:
    async with shared_rest.client_of(admission, cluster) as client:
        return await client.post("/v1/check", json={"objects": objects})


async def pending_reviews(
    admission: AdmissionService, document: dict[str, Any], before: dict[str, Any] | None = None
) -> dict[str, Any]:
    kind = kinds.BY_NAME[document["apiVersion"], document["kind"]]
    request = {
        "uid": "u",
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "operation": "CREATE" if before is None else "UPDATE",
        "namespace": "default",
        "object": document,
        "oldObject": before,
        "userInfo": {"username": "ada"},
    }
    body = msgspec.json.encode({"request": request})
    answer: dict[str, Any] = msgspec.json.decode(
        await admission.answer(f"/{kind.plural}/validate", body)
    )
    return answer["response"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("document", "path"), CASES, ids=["job", "pods", "cron"])
async def test_an_absent_priority_class_is_rejected_like_an_absent_queue(
    document: dict[str, Any], path: str, tmp_path: Path
) -> None:
    """With the command that creates it. When it exists, or is part of the same request, the job is
    accepted.
    """
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        await cluster.create(kinds.QUEUES, "", msgspec.json.encode(manifests.queue("default")))
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        answer = await checked(admission, cluster, document)
        (violation,) = answer.json()["violations"]
        assert (answer.status_code, violation["path"]) == (422, path)
        assert "priority class 'urgent' does not exist" in violation["reason"]
        assert not (await pending_reviews(admission, document))["allowed"]
        assert (await checked(admission, cluster, CLASS, document)).status_code == 200
        await cluster.create(kinds.PRIORITY_CLASSES, "", msgspec.json.encode(CLASS))
        assert (await checked(admission, cluster, document)).status_code == 200
        assert (await pending_reviews(admission, document))["allowed"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (manifests.job(), OF_JOB),
        (manifests.job(), OF_POD),
        (cron(manifests.job()), cron(OF_JOB)),
    ],
    ids=["job", "pods", "cron"],
)
async def test_a_change_to_an_absent_priority_class_is_rejected_and_others_are_not(
    before: dict[str, Any], after: dict[str, Any], tmp_path: Path
) -> None:
    """Pods that are created later would be refused. A class that was deleted since keeps nothing
    from changing."""
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        await cluster.create(kinds.QUEUES, "", msgspec.json.encode(manifests.queue("default")))
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        answer = await pending_reviews(admission, after, before)
        assert "priority class 'urgent' does not exist" in answer["status"]["message"]
        labelled = {**after, "metadata": {**after["metadata"], "labels": {"a": "b"}}}
        assert (await pending_reviews(admission, labelled, after))["allowed"]


async def test_a_class_that_every_cluster_has_is_never_absent(tmp_path: Path) -> None:
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        document = manifests.job(priorityClassName="system-node-critical")
        assert (await pending_reviews(admission, document))["allowed"]


def named(name: str, **spec: Any) -> dict[str, Any]:
    job = manifests.job(**spec)
    job["metadata"]["name"] = name
    return job


class CountingCluster(EmbeddedCluster):
    """Counts the lists of each kind."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.lists: Counter[str] = Counter()

    async def list(self, kind: port.AnyKind, *arguments: Any, **named: Any) -> port.Listing:
        self.lists[kind.plural] += 1
        return await super().list(kind, *arguments, **named)


@pytest.mark.parametrize("path", ["/v1/check", "/v1/bulk"])
async def test_objects_of_one_request_share_the_lists_of_the_api_server(
    path: str, tmp_path: Path
) -> None:
    """Else the cost of a request is its number of objects times the number of queues."""
    jobs = [named(f"j{number}", queue="absent", priorityClassName="urgent") for number in range(50)]
    async with CountingCluster(tmp_path / "cluster.db") as cluster:
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        async with shared_rest.client_of(admission, cluster) as client:
            began = time.monotonic()
            if path == "/v1/bulk":
                content = b"\n".join(map(msgspec.json.encode, jobs))
                headers = {"content-type": "application/x-ndjson"}
                answer = await client.post(path, content=content, headers=headers)
                assert answer.json()["counts"] == {"refused": 50}
            else:
                answer = await client.post(path, json={"objects": jobs})
                assert len(answer.json()["violations"]) == 100
        most = 2 + (time.monotonic() - began) / listings.MAX_AGE_S
        assert 1 <= cluster.lists["queues"] <= most
        assert 1 <= cluster.lists["priorityclasses"] <= most


async def test_a_queue_that_was_just_created_is_found(tmp_path: Path) -> None:
    """A list that began before the request is not recent enough, also within one bulk request."""
    job = named("j", queue="new")
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        assert (await checked(admission, cluster, job)).status_code == 422
        await cluster.create(kinds.QUEUES, "", msgspec.json.encode(manifests.queue("new")))
        assert (await checked(admission, cluster, job)).status_code == 200
        lines = [named("a", queue="later"), manifests.queue("later"), job]
        lines.append(named("b", queue="later"))
        async with shared_rest.client_of(admission, cluster) as client:
            content = b"\n".join(map(msgspec.json.encode, lines))
            headers = {"content-type": "application/x-ndjson"}
            answer = await client.post("/v1/bulk", content=content, headers=headers)
    results = [item["result"] for item in answer.json()["items"]]
    assert results == ["refused", "created", "created", "created"]


async def test_a_queue_whose_child_was_just_deleted_may_be_deleted(tmp_path: Path) -> None:
    """The cache still has the child: ``kubectl delete`` of both asks for one after the other."""
    child = builders.make_queue("child", parent="parent")
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        admission.fold(builders.make_record(builders.snapshot_of(child)))
        await cluster.create(kinds.QUEUES, "", msgspec.json.encode(manifests.queue("parent")))
        async with shared_rest.client_of(admission, cluster) as client:
            assert (await client.delete("/v1/queues/parent")).status_code == 204


@pytest.mark.parametrize(
    ("version", "kind", "meant"),
    [
        ("batch/v1", "Job", "batch.volcano.sh/v1alpha1 Job"),
        ("batch/v1", "CronJob", "batch.volcano.sh/v1alpha1 CronJob"),
        ("scheduling.k8s.io/v2", "PriorityClass", "scheduling.k8s.io/v1 PriorityClass"),
        ("batch.volcano.sh/v1alpha1", "Jobs", "batch.volcano.sh/v1alpha1 Job"),
        ("scheduling.volcano.sh/v1beta1", "PodGruop", "scheduling.volcano.sh/v1beta1 PodGroup"),
    ],
)
async def test_an_unsupported_kind_names_the_nearest_one(
    version: str, kind: str, meant: str, tmp_path: Path
) -> None:
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        document = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}
        (violation,) = (await checked(admission, cluster, document)).json()["violations"]
    assert violation["expected"] == f"did you mean {meant}?"


@pytest.mark.parametrize(
    ("field", "absent", "create"),
    [
        ("queue", "reserach", "strom queue create reserach"),
        ("priorityClassName", "reserach", "strom apply -f FILE with a PriorityClass"),
    ],
)
async def test_a_misspelt_name_is_answered_with_those_that_the_submitter_may_use(
    field: str, absent: str, create: str, tmp_path: Path
) -> None:
    """The nearest one first. Names of queues and priority classes that are closed to the submitter
    are for users who may read these objects."""
    async with EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        for name, users in (("research", None), ("default", None), ("own", ""), ("mine", "ada")):
            held = {} if users is None else {keys.ALLOWED_USERS: users}
            queue = manifests.queue(name, annotations=held)
            await cluster.create(kinds.QUEUES, "", msgspec.json.encode(queue))
            other = {**CLASS, "metadata": {"name": name, "annotations": held}}
            await cluster.create(kinds.PRIORITY_CLASSES, "", msgspec.json.encode(other))
        for queue in manifests.queue("parent"), manifests.queue("leaf", parent="parent"):
            await cluster.create(kinds.QUEUES, "", msgspec.json.encode(queue))
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        answer = await pending_reviews(admission, manifests.job(**{field: absent}))
        leaves = "default, leaf, mine, research" if field == "queue" else "default, mine, research"
        assert answer["status"]["message"].endswith(
            f"did you mean research? {'Queues' if field == 'queue' else 'Priority classes'} that "
            f"you can use: {leaves}; or create it: {create}"
        )
