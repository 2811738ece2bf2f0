"""Operations on existing jobs, and collections in pages."""

from typing import Any

import httpx
import msgspec
import pytest

from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import kinds
from stromboli.testkit.admission_cases import manifests

JOBS = "/v1/namespaces/default/jobs"


def job(name: str, *tasks: tuple[str, int]) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    made = [
        {"name": task, "replicas": replicas, "template": template}
        for task, replicas in tasks or [("work", 2)]
    ]
    return {"metadata": {"name": name}, "spec": {"tasks": made}}


async def test_all_pages_contain_each_remaining_job_once(client: httpx.AsyncClient) -> None:
    for name in ("b", "c", "d", "e", "f"):
        await client.post(JOBS, json=job(name))
    seen: list[str] = []
    token = ""
    for change in (
        lambda: client.post(JOBS, json=job("a")),
        lambda: client.delete(f"{JOBS}/b"),
        None,
    ):
        query = {"limit": "2", **({"continue": token} if token else {})}
        page = (await client.get(JOBS, params=query)).json()
        seen += [item["metadata"]["name"] for item in page["items"]]
        token = page.get("continue", "")
        if change is not None:
            await change()
    assert (seen, token) == (["b", "c", "d", "e", "f"], "")


@pytest.mark.parametrize("query", [{"limit": "0"}, {"limit": "x"}, {"continue": "nonsense"}])
async def test_a_page_that_cannot_be_is_a_problem(
    client: httpx.AsyncClient, query: dict[str, str]
) -> None:
    answer = await client.get(JOBS, params=query)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"].startswith("application/problem+json")


async def test_unknown_parameters_are_rejected_not_ignored(
    client: httpx.AsyncClient,
) -> None:
    """A request for some jobs must not return all of them."""
    answer = await client.get(JOBS, params={"labelSelector": "team=a", "limit": "2"})
    assert answer.status_code == 422
    (wrong,) = answer.json()["violations"]
    assert (wrong["path"], wrong["expected"]) == ("labelSelector", "one of continue, limit")
    assert (await client.delete(f"{JOBS}/absent", params={"force": "1"})).status_code == 422
    assert (await client.get("/readyz", params={"verbose": ""})).status_code != 422


async def test_a_wrong_parameter_is_named_as_it_was_sent(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/watch/jobs", params={"timeoutSeconds": "soon"})
    assert [each["path"] for each in answer.json()["violations"]] == ["timeoutSeconds"]


@pytest.mark.parametrize(("path", "action"), [("suspend", "AbortJob"), ("resume", "ResumeJob")])
async def test_suspending_and_resuming_are_commands(
    client: httpx.AsyncClient, cluster: EmbeddedCluster, path: str, action: str
) -> None:
    await client.post(JOBS, json=job("train"))
    answer = await client.post(f"{JOBS}/train/{path}")
    assert answer.status_code == 202
    (stored,) = (await cluster.list(kinds.COMMANDS)).items
    assert kinds.COMMANDS.decode(stored).action == action
    assert (await client.post(f"{JOBS}/none/{path}")).status_code == 404


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated"])
async def test_a_finished_job_accepts_no_commands(
    client: httpx.AsyncClient, cluster: EmbeddedCluster, phase: str
) -> None:
    """Its controller could refuse it later only, in an Event that the asker does not see."""
    await client.post(JOBS, json=job("train"))
    status = msgspec.json.encode({"status": {"state": {"phase": phase}}})
    await cluster.patch(
        kinds.JOBS, "default", "train", status, patch_type="merge", subresource="status"
    )
    answer = await client.post(f"{JOBS}/train/resume")
    assert answer.status_code == 422
    assert f"the job is {phase}" in answer.json()["detail"]
    assert not (await cluster.list(kinds.COMMANDS)).items


async def test_a_command_cannot_name_a_part_of_a_job(client: httpx.AsyncClient) -> None:
    await client.post(JOBS, json=job("train"))
    answer = await client.post(f"{JOBS}/train/commands", json={"action": "RestartPod"})
    assert answer.status_code == 422
    assert "RestartJob" in answer.json()["detail"]


async def test_a_gang_of_all_pods_remains_one_when_scaled(client: httpx.AsyncClient) -> None:
    await client.post(JOBS, json=job("train", ("ps", 1), ("worker", 2)))
    answer = await client.post(f"{JOBS}/train/scale", json={"task": "worker", "replicas": 5})
    assert (answer.status_code, answer.json()["result"]) == (200, "configured")
    spec = (await client.get(f"{JOBS}/train")).json()["spec"]
    assert ([task["replicas"] for task in spec["tasks"]], spec["minAvailable"]) == ([1, 5], 6)
    fewer = {"task": "worker", "replicas": 4, "minAvailable": 2}
    await client.post(f"{JOBS}/train/scale", json=fewer)
    assert (await client.get(f"{JOBS}/train")).json()["spec"]["minAvailable"] == 2


@pytest.mark.parametrize(
    ("requirement", "path"),
    [
        ({"replicas": 3}, "task"),
        ({"replicas": 3, "task": "none"}, "task"),
        ({"replicas": 0, "task": "ps", "minAvailable": 99}, "spec.minAvailable"),
    ],
)
async def test_an_impossible_scale_has_a_reason(
    client: httpx.AsyncClient, requirement: dict[str, Any], path: str
) -> None:
    await client.post(JOBS, json=job("train", ("ps", 1), ("worker", 2)))
    answer = await client.post(f"{JOBS}/train/scale", json=requirement)
    assert answer.status_code == 422
    assert [each["path"] for each in answer.json()["violations"]] == [path]


async def test_a_job_that_has_ended_is_not_scaled(
    client: httpx.AsyncClient, cluster: EmbeddedCluster
) -> None:
    """It would change the numbers of what is over, and start nothing."""
    await client.post(JOBS, json=job("train"))
    ended = msgspec.json.encode({"status": {"state": {"phase": "Completed"}}})
    await cluster.patch(
        kinds.JOBS, "default", "train", ended, patch_type="merge", subresource="status"
    )
    answer = await client.post(f"{JOBS}/train/scale", json={"replicas": 5})
    assert answer.status_code == 422
    assert [each["path"] for each in answer.json()["violations"]] == ["status.state.phase"]
    assert (await client.get(f"{JOBS}/train")).json()["spec"]["tasks"][0]["replicas"] != 5


async def test_a_change_sets_replicas_minimum_and_priority_in_one_patch(
    client: httpx.AsyncClient, cluster: EmbeddedCluster
) -> None:
    await client.post(JOBS, json=job("train", ("ps", 4), ("worker", 4)))
    urgent = {"metadata": {"name": "urgent"}, "value": 7}
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **urgent}
    await cluster.create(kinds.PRIORITY_CLASSES, "", msgspec.json.encode(body))
    before = (await client.get(f"{JOBS}/train")).json()["metadata"]["generation"]
    change = {"replicas": {"ps": 1, "worker": 9}, "priorityClassName": "urgent"}
    answer = await client.patch(f"{JOBS}/train", json=change)
    assert (answer.status_code, answer.json()["result"]) == (200, "configured")
    stored = (await client.get(f"{JOBS}/train")).json()
    spec = stored["spec"]
    assert [task["replicas"] for task in spec["tasks"]] == [1, 9]
    assert (spec["minAvailable"], spec["priorityClassName"]) == (10, "urgent")
    assert stored["metadata"]["generation"] == before + 1


async def test_a_gang_that_only_moves_pods_between_tasks_keeps_its_minimum(
    client: httpx.AsyncClient,
) -> None:
    elastic = job("train", ("ps", 4), ("worker", 4))
    elastic["spec"]["minAvailable"] = 6
    await client.post(JOBS, json=elastic)
    answer = await client.patch(f"{JOBS}/train", json={"replicas": {"ps": 1, "worker": 7}})
    assert answer.status_code == 200
    assert (await client.get(f"{JOBS}/train")).json()["spec"]["minAvailable"] == 6


async def test_a_change_sets_the_time_limit_and_the_estimate(client: httpx.AsyncClient) -> None:
    await client.post(JOBS, json=job("train", ("ps", 1)))
    change = {"activeDeadlineSeconds": 3600, "runningEstimate": "1h"}
    assert (await client.patch(f"{JOBS}/train", json=change)).status_code == 200
    spec = (await client.get(f"{JOBS}/train")).json()["spec"]
    assert (spec["activeDeadlineSeconds"], spec["runningEstimate"]) == (3600, "1h")
    refused = await client.patch(f"{JOBS}/train", json={"activeDeadlineSeconds": 0})
    assert refused.status_code == 400


@pytest.mark.parametrize(
    ("change", "status"), [({}, 422), ({"replicas": {"none": 1}}, 422), ({"plugins": {}}, 400)]
)
async def test_a_change_of_nothing_or_of_a_fixed_field_is_refused(
    client: httpx.AsyncClient, change: dict[str, Any], status: int
) -> None:
    await client.post(JOBS, json=job("train", ("ps", 1)))
    assert (await client.patch(f"{JOBS}/train", json=change)).status_code == status


SUSPEND = "suspend it first (strom job suspend train), and resume it in the other queue"


@pytest.mark.parametrize(
    ("phase", "pod_group", "reason"),
    [
        ("Pending", "Pending", ""),
        ("Pending", "Inqueue", ""),
        ("Aborting", "Running", ""),
        ("Aborted", "", ""),
        ("Pending", "Running", "pods of the job are on nodes already"),
        ("Running", "Running", "the job is Running"),
        ("Restarting", "", "the job is Restarting"),
    ],
)
async def test_the_queue_of_a_job_changes_while_no_pod_of_it_has_a_node(
    client: httpx.AsyncClient, cluster: EmbeddedCluster, phase: str, pod_group: str, reason: str
) -> None:
    """The quota of the queue is not used before. A closed or absent queue is rejected as for a new
    job."""
    await cluster.create(kinds.QUEUES, "", msgspec.json.encode(manifests.queue("other")))
    await client.post(JOBS, json=job("train", ("ps", 1)))
    uid = (await client.get(f"{JOBS}/train")).json()["metadata"]["uid"]
    now = msgspec.json.encode({"status": {"state": {"phase": phase}}})
    await cluster.patch(
        kinds.JOBS, "default", "train", now, patch_type="merge", subresource="status"
    )
    if pod_group:
        group = manifests.bare_object(kinds.POD_GROUPS, f"train-{uid}", status={"phase": pod_group})
        await cluster.create(kinds.POD_GROUPS, "default", msgspec.json.encode(group))
    answer = await client.patch(f"{JOBS}/train", json={"queue": "other"})
    stored = (await client.get(f"{JOBS}/train")).json()["spec"]["queue"]
    if not reason:
        assert (answer.status_code, stored) == (200, "other"), answer.text
        absent = (await client.patch(f"{JOBS}/train", json={"queue": "none"})).json()
        assert "queue 'none' does not exist" in absent["violations"][0]["reason"]
        return
    (violation,) = answer.json()["violations"]
    assert (answer.status_code, stored) == (422, "default")
    assert violation["reason"].startswith(f"{reason}, and the queue can change only while")
    assert violation["expected"].startswith(SUSPEND)
