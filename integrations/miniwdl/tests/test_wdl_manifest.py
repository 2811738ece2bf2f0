"""A run of a WDL task as a manifest."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec

from stromboli.miniwdl.manifest import DIRECTORY, Settings, Work, manifest, name, script

WORK = Work(
    task="align_reads-3",
    directory="/data/runs/20260101_align/call-align_reads-3",
    attempt=1,
    shell="/bin/bash",
    stdout="/data/runs/20260101_align/call-align_reads-3/stdout.txt",
    stderr="/data/runs/20260101_align/call-align_reads-3/stderr.txt",
    image="tools:9",
    runtime={
        "cpu": 8,
        "memory_reservation": 16_000_000_000,
        "gpus": 2,
        "time_minutes": 90,
        "strom_queue": "research",
    },
)


def container(work: Work) -> Any:
    (task,) = manifest(work, Settings()).spec.tasks
    (found,) = msgspec.json.decode(task.template.spec)["containers"]
    return found


def test_the_runtime_becomes_requests_queue_and_time_limit() -> None:
    job = manifest(WORK, Settings(queue="other", priority_class="high"))
    assert container(WORK)["resources"] == {
        "requests": {"cpu": "8", "memory": "16000000000", "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    assert container(WORK)["image"] == "tools:9"
    assert (job.spec.queue, job.spec.priority_class_name) == ("research", "high")
    assert job.spec.active_deadline_seconds == 90 * 60


def test_a_task_without_requests_has_the_defaults_of_the_specification() -> None:
    small = msgspec.structs.replace(WORK, runtime={"memory_limit": 3 * 1024**3})
    assert container(small)["resources"] == {
        "requests": {"cpu": "1", "memory": str(2 * 1024**3)},
        "limits": {"memory": str(3 * 1024**3)},
    }


def test_an_evicted_pod_starts_again_and_a_failed_one_fails_its_job() -> None:
    (policy,) = manifest(WORK, Settings()).spec.policies
    assert (policy.event, policy.action) == ("PodEvicted", "RestartPod")


def test_a_pod_that_starts_again_finds_its_inputs_and_no_files_of_its_earlier_run(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "it's here"
    for path in ("work/_miniwdl_inputs/0/in.txt", "work/half/done", "work/.hidden"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    (folder / "command").write_text("echo out; ls -A; exit 3")
    work = msgspec.structs.replace(
        WORK,
        directory=str(folder),
        stdout=str(folder / "stdout.txt"),
        stderr=str(folder / "stderr.txt"),
    )
    assert subprocess.run(["sh", "-c", script(work)], check=False).returncode == 3
    assert (folder / "stdout.txt").read_text() == "out\n_miniwdl_inputs\n"
    assert (folder / "work/_miniwdl_inputs/0/in.txt").exists()


def test_a_volume_is_mounted_in_all_pods() -> None:
    settings = Settings(volume_claim="data", mount_path="/data")
    (volume,) = manifest(WORK, settings).spec.volumes
    assert (volume.volume_claim_name, volume.mount_path) == ("data", "/data")


def test_the_name_depends_on_the_task_its_directory_and_attempt() -> None:
    others = [
        msgspec.structs.replace(WORK, directory="/data/other"),
        msgspec.structs.replace(WORK, task="sort"),
        msgspec.structs.replace(WORK, attempt=2),
    ]
    assert len({name(WORK), *map(name, others)}) == 4
    assert len(name(msgspec.structs.replace(WORK, task="_A-" + "x" * 80))) <= 52
    job = manifest(WORK, Settings())
    assert (job.metadata.annotations or {})[DIRECTORY] == WORK.directory
