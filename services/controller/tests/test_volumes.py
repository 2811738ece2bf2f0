"""Volume claims of a job: named, or created for it."""

import msgspec

from services.controller.tests.support.scenarios import enqueued, reap_all, submitted
from stromboli.shared.api import batch, kinds
from stromboli.testkit.builders import make_command, make_job

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def asking() -> batch.Job:
    volume_spec = batch.VolumeSpec(
        mount_path="/data", volume_claim=msgspec.Raw(msgspec.json.encode(CLAIM))
    )
    named = batch.VolumeSpec(mount_path="/in", volume_claim_name="shared")
    return make_job(volumes=(volume_spec, named))


def test_a_claim_is_created_for_the_job_owned_by_it_and_its_name_written_back() -> None:
    harness = submitted(asking())
    job = harness.job()
    name = job.spec.volumes[0].volume_claim_name
    assert name.startswith("j1-pvc-")
    assert len(name) == len("j1-pvc-") + 12
    body = harness.objects["persistentvolumeclaims", f"default/{name}"]
    assert body["spec"] == CLAIM
    assert body["metadata"]["ownerReferences"][0]["uid"] == job.metadata.uid
    assert job.status.controlled_resources == {
        f"volume-pvc-{name}": name,
        "volume-pvc-shared": "shared",
    }


def test_pods_mount_the_claim_that_was_created_and_the_one_that_was_named() -> None:
    harness = enqueued(asking())
    name = harness.job().spec.volumes[0].volume_claim_name
    body = harness.objects["pods", "default/j1-worker-0"]
    claims = {it["persistentVolumeClaim"]["claimName"] for it in body["spec"]["volumes"]}
    assert claims == {name, "shared"}
    mounts = body["spec"]["containers"][0]["volumeMounts"]
    assert [it["mountPath"] for it in mounts] == ["/data", "/in"]


def test_the_same_claim_is_found_after_a_kill_before_its_name_was_written() -> None:
    harness = submitted(asking())
    body = harness.objects["jobs", "default/j1"]
    body["spec"]["volumes"][0].pop("volumeClaimName")
    harness.put(kinds.JOBS, body)
    harness.restart()
    harness.settle()
    claims = [key for plural, key in harness.objects if plural == "persistentvolumeclaims"]
    assert claims == [f"default/{harness.job().spec.volumes[0].volume_claim_name}"]


def test_a_claim_outlives_the_pods_and_is_deleted_with_the_job() -> None:
    harness = enqueued(asking())
    harness.submit(make_command("c1", "RestartJob", harness.job()))
    harness.settle()
    reap_all(harness)
    assert [plural for plural, _ in harness.objects].count("persistentvolumeclaims") == 1
    harness.delete(kinds.JOBS, "default/j1")
    harness.settle()
    assert [plural for plural, _ in harness.objects].count("persistentvolumeclaims") == 0
