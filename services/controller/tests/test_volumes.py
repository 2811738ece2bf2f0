"""Claims of a job: named or made for it (spec/jobs.md 4.4)."""

import msgspec

from services.controller.tests.scenes import enqueued, reap_all, submitted
from stromboli.shared.api import batch, kinds
from stromboli.testkit.builders import make_command, make_job

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def asking() -> batch.Job:
    made = batch.VolumeSpec(
        mount_path="/data", volume_claim=msgspec.Raw(msgspec.json.encode(CLAIM))
    )
    named = batch.VolumeSpec(mount_path="/in", volume_claim_name="shared")
    return make_job(volumes=(made, named))


def test_a_claim_is_made_for_the_job_owned_by_it_and_its_name_written_back() -> None:
    world = submitted(asking())
    job = world.job()
    name = job.spec.volumes[0].volume_claim_name
    assert name.startswith("j1-pvc-")
    assert len(name) == len("j1-pvc-") + 12
    body = world.objects["persistentvolumeclaims", f"default/{name}"]
    assert body["spec"] == CLAIM
    assert body["metadata"]["ownerReferences"][0]["uid"] == job.metadata.uid
    assert job.status.controlled_resources == {
        f"volume-pvc-{name}": name,
        "volume-pvc-shared": "shared",
    }


def test_pods_mount_the_claim_that_was_made_and_the_one_that_was_named() -> None:
    world = enqueued(asking())
    name = world.job().spec.volumes[0].volume_claim_name
    body = world.objects["pods", "default/j1-worker-0"]
    claims = {it["persistentVolumeClaim"]["claimName"] for it in body["spec"]["volumes"]}
    assert claims == {name, "shared"}
    mounts = body["spec"]["containers"][0]["volumeMounts"]
    assert [it["mountPath"] for it in mounts] == ["/data", "/in"]


def test_the_same_claim_is_found_after_a_kill_before_its_name_was_written() -> None:
    world = submitted(asking())
    body = world.objects["jobs", "default/j1"]
    body["spec"]["volumes"][0].pop("volumeClaimName")
    world.put(kinds.JOBS, body)
    world.restart()
    world.settle()
    claims = [key for plural, key in world.objects if plural == "persistentvolumeclaims"]
    assert claims == [f"default/{world.job().spec.volumes[0].volume_claim_name}"]


def test_a_claim_outlives_the_pods_and_goes_with_the_job() -> None:
    world = enqueued(asking())
    world.submit(make_command("c1", "RestartJob", world.job()))
    world.settle()
    reap_all(world)
    assert [plural for plural, _ in world.objects].count("persistentvolumeclaims") == 1
    world.delete(kinds.JOBS, "default/j1")
    world.settle()
    assert [plural for plural, _ in world.objects].count("persistentvolumeclaims") == 0
