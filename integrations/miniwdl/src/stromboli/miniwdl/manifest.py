"""A run of a WDL task as a Stromboli job. Pure."""

import hashlib
import re
import shlex
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from stromboli.client import job
from stromboli.shared.api import batch

ENGINE_LABEL, ENGINE = "stromboli.sh/engine", "miniwdl"
"""A label of all jobs of this package."""
DIRECTORY = "stromboli.sh/miniwdl-directory"
"""An annotation: the run directory of the job's task."""
ENDED_TTL_S = 3600
"""Time after which an ended job is deleted if miniwdl does not delete it."""
MAX_RETRY = 100
"""Restarts after evictions. A failed task is retried by miniwdl (``maxRetries``)."""
CPU, MEMORY_BYTES = 1, 2 * 1024**3
"""Requests of a task without ``cpu`` and ``memory``: the defaults of the WDL specification."""
_NAME_LENGTH = 30


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Section ``[strom]`` of miniwdl's configuration.

    ``volume_claim``: a PersistentVolumeClaim that is mounted at ``mount_path`` in all pods.
    ``poll_s``: seconds between two requests for the state of a job.
    """

    namespace: str = "default"
    queue: str = ""
    priority_class: str = ""
    volume_claim: str = ""
    mount_path: str = ""
    poll_s: float = 2.0


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a task. ``directory``: its run directory, whose ``work`` is the command's
    working directory; ``runtime``: the values that miniwdl evaluated and those of this
    package (see ``manifest``)."""

    task: str
    directory: str
    attempt: int
    shell: str
    stdout: str
    stderr: str
    image: str
    runtime: Mapping[str, Any]


def name(work: Work) -> str:
    """The job's name: the same for the same attempt in the same run directory."""
    task = re.sub("[^a-z0-9]+", "-", work.task.lower()).strip("-")[:_NAME_LENGTH].strip("-")
    key = hashlib.sha256(work.directory.encode()).hexdigest()[:10]
    return "-".join(part for part in ("wdl", task, key, str(work.attempt)) if part)


def script(work: Work) -> str:
    """The program of the pod. A pod that starts again after an eviction begins in a directory
    without files of its earlier run; inputs stay."""
    words = {
        "work": f"{work.directory}/work",
        "command": f"{work.directory}/command",
        "stdout": work.stdout,
        "stderr": work.stderr,
    }
    quoted = {key: shlex.quote(text) for key, text in words.items()}
    return (
        f"cd {quoted['work']} || exit 1\n"
        "find . -mindepth 1 -maxdepth 1 ! -name '_miniwdl_*' -exec rm -rf {} + || exit 1\n"
        f"exec {work.shell} {quoted['command']} > {quoted['stdout']} 2> {quoted['stderr']}\n"
    )


def manifest(work: Work, settings: Settings) -> batch.Job:
    """The job of a task. Reads from ``runtime``: ``cpu``, ``memory_reservation`` and
    ``memory_limit`` (bytes), ``gpus``, ``time_minutes``, ``strom_queue`` and
    ``strom_priority_class``."""
    runtime_values = work.runtime
    minutes = runtime_values.get("time_minutes")
    base_job = job(
        name(work),
        image=work.image,
        command=["sh", "-c", script(work)],
        requests={
            "cpu": str(runtime_values.get("cpu", CPU)),
            "memory": str(runtime_values.get("memory_reservation", MEMORY_BYTES)),
        },
        gpus=int(runtime_values.get("gpus", 0)),
        time_limit=timedelta(minutes=minutes) if minutes else None,
        queue=str(runtime_values.get("strom_queue") or settings.queue),
        priority_class=str(runtime_values.get("strom_priority_class") or settings.priority_class),
    )
    evicted = batch.LifecyclePolicy(event="PodEvicted", action="RestartPod")
    spec = msgspec.structs.replace(
        base_job.spec,
        policies=(evicted,),
        max_retry=MAX_RETRY,
        ttl_seconds_after_finished=ENDED_TTL_S,
    )
    if "memory_limit" in runtime_values:
        spec = _with_memory_limit(spec, int(runtime_values["memory_limit"]))
    if settings.volume_claim:
        volume = batch.VolumeSpec(
            mount_path=settings.mount_path, volume_claim_name=settings.volume_claim
        )
        spec = msgspec.structs.replace(spec, volumes=(volume,))
    metadata = msgspec.structs.replace(
        base_job.metadata, labels={ENGINE_LABEL: ENGINE}, annotations={DIRECTORY: work.directory}
    )
    return msgspec.structs.replace(base_job, metadata=metadata, spec=spec)


def _with_memory_limit(spec: batch.JobSpec, limit_bytes: int) -> batch.JobSpec:
    (task,) = spec.tasks
    pod = msgspec.json.decode(task.template.spec)
    resources = pod["containers"][0]["resources"]
    resources["limits"] = {**resources.get("limits", {}), "memory": str(limit_bytes)}
    template = msgspec.structs.replace(task.template, spec=msgspec.Raw(msgspec.json.encode(pod)))
    return msgspec.structs.replace(spec, tasks=(msgspec.structs.replace(task, template=template),))
