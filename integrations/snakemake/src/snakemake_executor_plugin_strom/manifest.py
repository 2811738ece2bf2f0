"""One job of Snakemake as a Stromboli job. Pure."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from snakemake_executor_plugin_strom.settings import ExecutorSettings
from stromboli.client import job
from stromboli.shared.api import batch

WORKFLOW_LABEL = "stromboli.sh/snakemake-workflow"
"""The label of a job; its value is the same for all jobs of a working directory."""
ENDED_TTL_S = 3600
"""Time after which an ended job is deleted if Snakemake does not delete it."""
MAX_RETRY = 100
"""Restarts after evictions. A failed job is retried by Snakemake (``--retries``)."""
_RULE_LENGTH = 24


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A job of Snakemake. ``targets``: identify the job within its working directory."""

    directory: str
    rule: str
    targets: Sequence[str]
    attempt: int
    threads: int
    resources: Mapping[str, Any]
    command: str


def digest(text: str) -> str:
    """A digest of ten characters, for use in names."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def name(work: Work) -> str:
    """The job's name: the same for the same work in the same directory, also after a restart of
    Snakemake."""
    rule = re.sub("[^a-z0-9]+", "-", work.rule.lower()).strip("-")[:_RULE_LENGTH].strip("-")
    key = digest("\n".join([work.directory, work.rule, *work.targets]))
    return "-".join(part for part in ("snakemake", rule, key, str(work.attempt)) if part)


def manifest(work: Work, settings: ExecutorSettings) -> batch.Job:
    """The job. ``threads`` are its CPUs; resources: ``mem_mb``, ``gpu``, ``runtime`` in minutes,
    ``strom_queue``, ``strom_priority_class`` and ``strom_image``."""
    job_resources = work.resources
    image = str(job_resources.get("strom_image") or settings.image)
    requests = {"cpu": str(work.threads)}
    if memory := job_resources.get("mem_mb"):
        requests["memory"] = f"{int(memory)}M"
    base_job = job(
        name(work),
        image=image or "process-node",
        command=["sh", "-c", work.command],
        requests=requests,
        gpus=int(job_resources.get("gpu") or 0),
        working_dir=work.directory,
        time_limit=timedelta(minutes=int(job_resources["runtime"]))
        if job_resources.get("runtime")
        else None,
        queue=str(job_resources.get("strom_queue") or settings.queue),
        priority_class=str(job_resources.get("strom_priority_class") or settings.priority_class),
    )
    labels = {WORKFLOW_LABEL: digest(work.directory)}
    evicted = batch.LifecyclePolicy(event="PodEvicted", action="RestartPod")
    spec = msgspec.structs.replace(
        base_job.spec,
        policies=(evicted,),
        max_retry=MAX_RETRY,
        ttl_seconds_after_finished=ENDED_TTL_S,
    )
    if settings.volume_claim:
        spec = msgspec.structs.replace(
            spec,
            volumes=(
                batch.VolumeSpec(
                    mount_path=settings.mount_path or work.directory,
                    volume_claim_name=settings.volume_claim,
                ),
            ),
        )
    metadata = msgspec.structs.replace(base_job.metadata, labels=labels)
    return msgspec.structs.replace(base_job, metadata=metadata, spec=spec)
