"""Data sets of a job in its pods."""

from typing import Any

import msgspec

from stromboli.controller.core.pods import data_volumes, pods
from stromboli.controller.core.tasks import tasks
from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.jobspec import data_sets
from stromboli.testkit.builders import make_job, make_task

IMAGES = batch.DataSet(name="images", uri="s3://b/images", mount_path="/images", size="2Ki")
WEIGHTS = batch.DataSet(name="a", uri="file:///w", mount_path="/weights", locality="Required")
CLAIM = batch.DataSet(name="out", persistent_volume_claim="out", mount_path="/out", read_only=False)


def job_with(*found: batch.DataSet, pod_spec: dict[str, Any] | None = None) -> batch.Job:
    job = make_job(tasks=[make_task(pod_spec=pod_spec)])
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, data_sets=found))


def pod(job: batch.Job, root: str = data_sets.DEFAULT_ROOT) -> dict[str, Any]:
    member = next(iter(tasks.Members(job)))
    body: dict[str, Any] = msgspec.json.decode(pods.create(job, member, data_root=root).body)
    return body


def test_every_pod_names_the_data_sets_that_caches_hold() -> None:
    found = pod(job_with(IMAGES, WEIGHTS, CLAIM))["metadata"]["annotations"]
    read = data_sets.requests_of(found)
    assert [(each.name, each.bytes, each.locality) for each in read] == [
        ("a", 0, "Required"),
        ("images", 2048, "Preferred"),
    ]


def test_a_job_without_data_sets_has_neither_annotation_nor_volume() -> None:
    body = pod(job_with())
    assert keys.DATA_SETS not in body["metadata"]["annotations"]
    assert "volumes" not in body["spec"]


def test_a_copy_is_a_directory_that_the_kubelet_waits_for_in_all_containers() -> None:
    init = {"initContainers": [{"name": "init"}]}
    spec = pod(job_with(IMAGES, pod_spec=init), "/cache")["spec"]
    (volume,) = spec["volumes"]
    key = data_sets.content_key("s3://b/images", "")
    assert volume["hostPath"] == {"path": f"/cache/{key}/content", "type": "Directory"}
    mount = {"name": volume["name"], "mountPath": "/images", "readOnly": True}
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["volumeMounts"] == [mount]


def test_a_claim_is_one_volume_even_if_it_is_named_twice() -> None:
    again = msgspec.structs.replace(CLAIM, name="again", mount_path="/again", read_only=True)
    job = job_with(CLAIM, again)
    volumes = (batch.VolumeSpec(mount_path="/third", volume_claim_name="out"),)
    job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, volumes=volumes))
    spec = pod(job)["spec"]
    (volume,) = spec["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "out"}
    mounts = spec["containers"][0]["volumeMounts"]
    assert {each["name"] for each in mounts} == {volume["name"]}
    assert [each.get("readOnly", False) for each in mounts] == [False, False, True]


def test_a_data_set_of_fluid_is_the_claim_that_fluid_creates() -> None:
    body = pod(job_with(batch.DataSet(name="f", uri="fluid://default/images", mount_path="/f")))
    (volume,) = body["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "images"}
    (request,) = data_sets.requests_of(body["metadata"]["annotations"])
    assert (request.uri, request.key) == ("fluid://default/images", "")


def test_a_size_that_no_rule_has_seen_blocks_the_pods() -> None:
    broken = msgspec.structs.replace(IMAGES, size="much")
    job = msgspec.structs.replace(job_with(broken), status=batch.JobStatus(version=1))
    (blocker,) = pods.blockers(job)
    assert "the size of the data set images" in blocker.message


def test_a_data_set_without_a_source_blocks_the_pods() -> None:
    job = job_with(batch.DataSet(name="a", mount_path="/a"))
    assert "neither" in data_volumes.problem(job)
