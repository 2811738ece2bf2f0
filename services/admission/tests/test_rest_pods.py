"""REST lists pods, and the Events of a job."""

from typing import Any

import httpx
import msgspec
import pytest

from stromboli.admission.rest.routes import pods
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import batch, kinds, meta

JOB = batch.Job(
    metadata=meta.ObjectMeta(name="train", namespace="default", uid="u1"),
    spec=batch.JobSpec(tasks=(batch.TaskSpec(name="ps"), batch.TaskSpec(name="worker"))),
)


def event(kind: str, name: str, uid: str = "") -> dict[str, Any]:
    return {"involvedObject": {"kind": kind, "name": name, "uid": uid, "namespace": "default"}}


@pytest.mark.parametrize(
    ("about", "belongs"),
    [
        (event("Job", "train", "u1"), True),
        (event("Job", "train", "an earlier one"), False),
        (event("PodGroup", "train-u1"), True),
        (event("PodGroup", "train-u2"), False),
        (event("Pod", "train-worker-12"), True),
        (event("Pod", "train-ps-0"), True),
        (event("Pod", "train-2-worker-0"), False),
        (event("Pod", "train-other-0"), False),
        (event("Service", "train"), False),
        ({}, False),
    ],
)
def test_events_of_a_job_are_of_itself_its_group_and_its_tasks_pods(
    about: dict[str, Any], belongs: bool
) -> None:
    assert pods.is_about(msgspec.json.encode(about), JOB) is belongs


async def test_the_events_of_a_job_contain_no_others(
    client: httpx.AsyncClient, cluster: EmbeddedCluster
) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    task = {"name": "w", "replicas": 1, "template": template}
    await client.post(
        "/v1/namespaces/default/jobs", json={"metadata": {"name": "a"}, "spec": {"tasks": [task]}}
    )
    for name, pod in (("e1", "a-w-0"), ("e2", "b-w-0")):
        metadata = {"name": name, "namespace": "default"}
        body = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, **event("Pod", pod)}
        await cluster.create(kinds.EVENTS, "default", msgspec.json.encode(body))
    found = (await client.get("/v1/namespaces/default/jobs/a/events")).json()
    assert [item["metadata"]["name"] for item in found["items"]] == ["e1"]
    absent = await client.get("/v1/namespaces/default/jobs/none/events")
    assert absent.status_code == 404


async def test_pods_are_of_all_namespaces_or_of_one(
    client: httpx.AsyncClient, cluster: EmbeddedCluster
) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
    await cluster.create(kinds.NAMESPACES, "", msgspec.json.encode(body))
    for namespace in ("default", "other"):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"in-{namespace}", "namespace": namespace},
            "spec": {"containers": [{"name": "c", "image": "busybox"}]},
        }
        await cluster.create(kinds.PODS, namespace, msgspec.json.encode(pod))

    async def names(query: str) -> list[str]:
        items = (await client.get(f"/v1/pods{query}")).json()["items"]
        return sorted(item["metadata"]["name"] for item in items)

    assert await names("") == ["in-default", "in-other"]
    assert await names("?namespace=other") == ["in-other"]
