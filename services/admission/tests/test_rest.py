"""REST reports its results, and every error as problem+json."""

from typing import Any

import httpx
import pytest

Document = dict[str, Any]
JOBS = "/v1/namespaces/default/jobs"


def job(name: str = "train", **spec: Any) -> Document:
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    task = {"name": "work", "replicas": 2, "template": template}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"tasks": [task], **spec},
    }


def queue(name: str) -> Document:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
    }


async def test_a_submitted_job_is_stored_complete(client: httpx.AsyncClient) -> None:
    answer = await client.post(JOBS, json=job())
    assert answer.status_code == 201
    stored = (await client.get(f"{JOBS}/train")).json()
    assert stored["spec"]["minAvailable"] == 2
    assert stored["spec"]["schedulerName"] == "volcano"
    assert stored["metadata"]["uid"] == answer.json()["metadata"]["uid"]


async def test_a_wrong_job_is_a_problem_with_all_paths(client: httpx.AsyncClient) -> None:
    answer = await client.post(JOBS, json=job(queue="nowhere", minAvailable=9))
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("application/problem+json")
    problem = answer.json()
    assert {item["path"] for item in problem["violations"]} == {"spec.queue", "spec.minAvailable"}
    assert all(item["reason"] and item["expected"] for item in problem["violations"])
    assert (await client.get(JOBS)).json()["items"] == []


async def test_an_existing_name_is_a_conflict(client: httpx.AsyncClient) -> None:
    await client.post(JOBS, json=job())
    answer = await client.post(JOBS, json=job())
    assert answer.status_code == 409


@pytest.mark.parametrize("path", [f"{JOBS}/none", "/v1/queues/none", f"{JOBS}/none/explanation"])
async def test_an_absent_object_is_404(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 404
    assert "none" in answer.json()["detail"]


async def test_a_missing_body_is_reported(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/apply")
    assert answer.status_code == 400
    assert answer.json()["violations"] == [
        {"path": "data", "reason": "the request has no body", "expected": "a JSON object"}
    ]


async def test_a_body_that_is_no_json_object_is_400(client: httpx.AsyncClient) -> None:
    answer = await client.post(JOBS, content=b"[1,", headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("application/problem+json")


async def test_another_namespace_than_the_paths_is_refused(client: httpx.AsyncClient) -> None:
    made = job()
    made["metadata"]["namespace"] = "other"
    answer = await client.post(JOBS, json=made)
    assert [item["path"] for item in answer.json()["violations"]] == ["metadata.namespace"]


async def test_a_job_of_another_scheduler_is_refused_here(client: httpx.AsyncClient) -> None:
    answer = await client.post(JOBS, json=job(schedulerName="other"))
    assert [item["path"] for item in answer.json()["violations"]] == ["spec.schedulerName"]


async def test_a_queue_and_its_job_apply_together_and_again(client: httpx.AsyncClient) -> None:
    objects = {"objects": [queue("team"), job(queue="team")]}
    first = await client.post("/v1/apply", json=objects)
    assert [item["result"] for item in first.json()] == ["created", "created"]
    again = await client.post("/v1/apply", json=objects)
    assert [item["result"] for item in again.json()] == ["unchanged", "unchanged"]


async def test_applying_a_change_changes_only_that(client: httpx.AsyncClient) -> None:
    await client.post("/v1/apply", json={"objects": [job()]})
    answer = await client.post("/v1/apply", json={"objects": [job(minAvailable=1)]})
    assert [item["result"] for item in answer.json()] == ["configured"]
    stored = (await client.get(f"{JOBS}/train")).json()
    assert (stored["spec"]["minAvailable"], stored["spec"]["queue"]) == (1, "default")


async def test_one_invalid_object_rejects_the_whole_request(client: httpx.AsyncClient) -> None:
    objects = [queue("team"), job("good"), job("bad", minAvailable=9)]
    answer = await client.post("/v1/apply", json={"objects": objects})
    assert [item["path"] for item in answer.json()["violations"]] == [
        "objects[2].spec.minAvailable"
    ]
    assert (await client.get(JOBS)).json()["items"] == []
    assert (await client.get("/v1/queues/team")).status_code == 404


async def test_an_unknown_kind_is_rejected_with_the_known_ones(
    client: httpx.AsyncClient,
) -> None:
    strange = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    answer = await client.post("/v1/apply", json={"objects": [strange]})
    (violation,) = answer.json()["violations"]
    assert violation["path"] == "kind"
    assert "batch.volcano.sh/v1alpha1 Job" in violation["expected"]


async def test_a_deleted_job_is_gone(client: httpx.AsyncClient) -> None:
    await client.post(JOBS, json=job())
    assert (await client.delete(f"{JOBS}/train")).status_code == 204
    assert (await client.get(f"{JOBS}/train")).status_code == 404


async def test_a_protected_queue_stays(client: httpx.AsyncClient) -> None:
    answer = await client.delete("/v1/queues/default")
    assert answer.status_code == 422
    assert "always exists" in answer.json()["detail"]


async def test_a_command_becomes_an_object_that_points_to_its_job(
    client: httpx.AsyncClient,
) -> None:
    made = (await client.post(JOBS, json=job())).json()
    answer = await client.post(f"{JOBS}/train/commands", json={"action": "AbortJob"})
    assert answer.status_code == 202
    assert answer.json()["target"]["uid"] == made["metadata"]["uid"]
    refused = await client.post(f"{JOBS}/train/commands", json={"action": "Explode"})
    assert refused.status_code == 422


async def test_an_unknown_job_has_no_explanation(
    client: httpx.AsyncClient,
) -> None:
    await client.post(JOBS, json=job())
    answer = (await client.get(f"{JOBS}/train/explanation")).json()
    assert (answer["phase"], answer["explained"]) == ("Pending", None)


async def test_the_api_describes_itself(client: httpx.AsyncClient) -> None:
    described = (await client.get("/schema/openapi.json")).json()
    assert "/v1/namespaces/{namespace}/jobs" in described["paths"]


async def test_a_body_over_the_limit_is_refused(client: httpx.AsyncClient) -> None:
    huge = job()
    huge["metadata"]["annotations"] = {"x": "y" * (4 * 1024 * 1024)}
    assert (await client.post(JOBS, json=huge)).status_code == 413


async def test_admission_generates_names(client: httpx.AsyncClient) -> None:
    made = job()
    made["metadata"] = {"generateName": "train-"}
    first, second = [(await client.post(JOBS, json=made)).json() for _ in range(2)]
    names = {first["metadata"]["name"], second["metadata"]["name"]}
    assert len(names) == 2
    assert all(name.startswith("train-") for name in names)


async def test_a_check_returns_the_result_and_stores_nothing(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post("/v1/check", json={"objects": [job()]})
    assert answer.status_code == 200
    (accepted,) = answer.json()
    assert (accepted["result"], accepted["object"]["spec"]["minAvailable"]) == ("accepted", 2)
    assert (await client.get(JOBS)).json()["items"] == []


async def test_a_check_reports_the_violations_of_each_object(client: httpx.AsyncClient) -> None:
    objects = [job("a"), job("b", queue="nowhere")]
    answer = await client.post("/v1/check", json={"objects": objects})
    assert answer.status_code == 422
    assert [each["path"] for each in answer.json()["violations"]] == ["objects[1].spec.queue"]
