"""A task instance as a job: its name, idempotency key and manifest. Pure.

The name is derived from DAG, run, task, map index and try, so that an operator that runs again
finds the job by its name, without stored state.
"""

import copy
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from stromboli.client import job
from stromboli.client.operations import calls
from stromboli.shared.api import batch

DAG_LABEL = "stromboli.sh/airflow-dag"
"""The label of all jobs of a DAG: its id as a valid value of a label."""
TASK_ANNOTATION = "stromboli.sh/airflow-task"
"""The annotation of a job: DAG, run, task, map index and try."""
MAX_RETRY = 100
"""Restarts after evictions. A failed job is retried by Airflow."""
_NAME_LENGTH = 30


class TaskKey(msgspec.Struct, frozen=True):
    """An attempt of a task. ``map_index`` is -1 for a task that is not mapped."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int

    def __str__(self) -> str:
        return "/".join(str(getattr(self, field)) for field in self.__struct_fields__)

    def earlier_tries(self) -> list["TaskKey"]:
        """The earlier attempts, the newest first."""
        numbers = range(self.try_number - 1, 0, -1)
        return [msgspec.structs.replace(self, try_number=number) for number in numbers]


def slug(text: str, length: int) -> str:
    """The text as a part of a name: lower-case letters, digits and hyphens."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[:length].strip("-")


def digest(text: str) -> str:
    """A digest of ten characters, for use in names."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def job_name(key: TaskKey, base: str = "") -> str:
    """The job's name: the same for the same attempt. ``base`` is its beginning, by default DAG and
    task."""
    readable = slug(base, _NAME_LENGTH) or slug(f"{key.dag_id}-{key.task_id}", _NAME_LENGTH)
    return "-".join(part for part in (readable or "airflow", digest(str(key))) if part)


def idempotency_key(key: TaskKey) -> str:
    """The idempotency key of the attempt's submission."""
    return f"airflow-{hashlib.sha256(str(key).encode()).hexdigest()}"


def parsed(manifest: str | Mapping[str, Any] | batch.Job) -> dict[str, Any]:
    """A manifest as a dictionary. Raises ValueError if it is not one object of kind Job."""
    if isinstance(manifest, batch.Job):
        return dict(calls.document(manifest, manifest.metadata.namespace or "default"))
    try:
        parsed_manifest = yaml.safe_load(manifest) if isinstance(manifest, str) else manifest
    except yaml.YAMLError as error:
        raise ValueError(f"the manifest is not YAML: {error}") from None
    if not isinstance(parsed_manifest, Mapping) or parsed_manifest.get("kind", "Job") != "Job":
        raise ValueError("the manifest is not an object of kind Job")
    return copy.deepcopy(dict(parsed_manifest))


def simple_job(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a job of equal pods, from the arguments of ``stromboli.client.job``. Its
    evicted pods start again. Raises InvalidArgumentError."""
    base_job = job("airflow", **arguments)
    action = (
        "RestartPod"
        if base_job.spec.tasks[0].replicas == 1 or base_job.spec.array
        else "RestartJob"
    )
    spec = msgspec.structs.replace(
        base_job.spec,
        policies=(batch.LifecyclePolicy(event="PodEvicted", action=action),),
        max_retry=MAX_RETRY,
    )
    job_document = dict(calls.document(msgspec.structs.replace(base_job, spec=spec), "default"))
    return {**job_document, "metadata": {}}


def submitted(
    key: TaskKey, manifest: Mapping[str, Any], namespace: str, ended_ttl_s: int
) -> dict[str, Any]:
    """The manifest with the name, label and annotation of the attempt, in ``namespace`` unless the
    manifest names another one. The job is deleted ``ended_ttl_s`` seconds after its end unless
    the manifest sets ``ttlSecondsAfterFinished``."""
    metadata = dict(manifest.get("metadata") or {})
    spec = {"ttlSecondsAfterFinished": ended_ttl_s, **(manifest.get("spec") or {})}
    metadata["name"] = job_name(key, str(metadata.get("name") or ""))
    metadata.setdefault("namespace", namespace)
    metadata["labels"] = {**(metadata.get("labels") or {}), DAG_LABEL: slug(key.dag_id, 63)}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), TASK_ANNOTATION: str(key)}
    kind = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    return {**kind, **manifest, "metadata": metadata, "spec": spec}
