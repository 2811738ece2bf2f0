"""A job of Snakemake as a manifest."""

import msgspec

from snakemake_executor_plugin_strom.manifest import Work, manifest, name
from snakemake_executor_plugin_strom.settings import ExecutorSettings

WORK = Work(
    directory="/data/project",
    rule="align_reads",
    targets=("align_reads:sample=a",),
    attempt=1,
    threads=8,
    resources={"mem_mb": 16000, "gpu": 2, "runtime": 90, "strom_queue": "research"},
    command="python -m snakemake ...",
)


def test_threads_and_resources_become_requests_queue_and_time_limit() -> None:
    settings = ExecutorSettings(queue="other", priority_class="high", image="snakemake:9")
    job = manifest(WORK, settings)
    (container,) = msgspec.json.decode(job.spec.tasks[0].template.spec)["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "8", "memory": "16000M", "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    assert (container["image"], container["workingDir"]) == ("snakemake:9", "/data/project")
    assert (job.spec.queue, job.spec.priority_class_name) == ("research", "high")
    assert job.spec.active_deadline_seconds == 90 * 60


def test_an_evicted_pod_starts_again_and_a_failed_one_fails_its_job() -> None:
    (policy,) = manifest(WORK, ExecutorSettings()).spec.policies
    assert (policy.event, policy.action) == ("PodEvicted", "RestartPod")


def test_a_volume_is_mounted_at_the_working_directory() -> None:
    (volume,) = manifest(WORK, ExecutorSettings(volume_claim="data")).spec.volumes
    assert (volume.volume_claim_name, volume.mount_path) == ("data", "/data/project")


def test_the_name_depends_on_the_work_and_its_attempt_alone() -> None:
    assert name(WORK) == name(msgspec.structs.replace(WORK, command="other", threads=1))
    others = [
        msgspec.structs.replace(WORK, directory="/data/other"),
        msgspec.structs.replace(WORK, targets=("align_reads:sample=b",)),
        msgspec.structs.replace(WORK, attempt=2),
    ]
    assert len({name(WORK), *map(name, others)}) == 4


def test_a_rule_of_any_name_gives_a_valid_name() -> None:
    long = name(msgspec.structs.replace(WORK, rule="_A-very_long-" + "x" * 80))
    assert len(long) <= 52
    assert long.startswith("snakemake-a-very-long-xxx")
