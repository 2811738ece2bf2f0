"""REST shows and deletes objects that create jobs."""

from typing import Any

import httpx
import msgspec
import pytest

from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import kinds
from stromboli.testkit.admission_cases.manifests import cron, flow

POD = {"containers": [{"name": "c", "image": "busybox"}]}
TEMPLATE = {
    "apiVersion": kinds.JOB_TEMPLATES.api_version,
    "kind": "JobTemplate",
    "metadata": {"name": "pipeline"},
    "spec": {"tasks": [{"name": "work", "replicas": 1, "template": {"spec": POD}}]},
}
MADE: dict[str, dict[str, Any]] = {
    "jobflows": flow(a=[]),
    "jobtemplates": TEMPLATE,
    "cronjobs": cron(name="pipeline"),
}


@pytest.mark.parametrize("plural", MADE)
async def test_applied_objects_are_listed_shown_and_deleted(
    client: httpx.AsyncClient, plural: str
) -> None:
    answer = await client.post("/v1/apply", json={"objects": [MADE[plural]]})
    assert answer.status_code == 200, answer.text
    one = f"/v1/namespaces/default/{plural}/pipeline"
    assert (await client.get(one)).json()["metadata"]["name"] == "pipeline"
    for path, count in ((f"/v1/{plural}", 1), (f"/v1/namespaces/other/{plural}", 0)):
        listed = (await client.get(path)).json()
        assert len(listed["items"]) == count
        assert listed["resourceVersion"]
    assert (await client.delete(one)).status_code == 204
    assert (await client.get(one)).status_code == 404
    assert (await client.delete(one)).status_code == 404


async def test_events_are_those_about_the_object_that_is_there_now(
    client: httpx.AsyncClient, cluster: EmbeddedCluster
) -> None:
    await client.post("/v1/apply", json={"objects": [MADE["cronjobs"]]})
    one = "/v1/namespaces/default/cronjobs/pipeline"
    uid = (await client.get(one)).json()["metadata"]["uid"]
    for name, about in (("mine", uid), ("earlier", "another")):
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "CronJob", "name": "pipeline", "uid": about},
        }
        await cluster.create(kinds.EVENTS, "default", msgspec.json.encode(body))
    found = (await client.get(f"{one}/events")).json()["items"]
    assert [item["metadata"]["name"] for item in found] == ["mine"]
    assert (await client.get(f"{one}-2/events")).status_code == 404


@pytest.mark.parametrize(
    ("wrong", "path"),
    [(flow(a=["b"], b=["a"]), "spec.flows"), (cron("61 * * * *"), "spec.schedule")],
)
async def test_an_object_that_could_never_run_is_rejected(
    client: httpx.AsyncClient, wrong: dict[str, Any], path: str
) -> None:
    answer = await client.post("/v1/apply", json={"objects": [wrong]})
    assert answer.status_code == 422
    assert answer.json()["violations"][0]["path"] == path
