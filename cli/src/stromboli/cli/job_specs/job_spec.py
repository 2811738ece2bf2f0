"""The job that ``strom job run`` writes: one task, one container. Pure."""

import math
import re
from datetime import timedelta
from typing import Any

import msgspec

from stromboli.cli.job_specs import sbatch
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.formats import indexes, units

Document = dict[str, Any]
DEFAULT_IMAGE = "busybox"
DEFAULT_REQUESTS = {"cpu": "1", "memory": "100Mi"}
"""The default requests, those of Volcano's command line, so that the same command creates the same
job."""
GPU = "nvidia.com/gpu"
"""The resource that ``--gpus`` counts."""
LEAST_MEMORY_BYTES = 1024 * 1024
"""Minimum memory in bytes; no container runs with less, and a user who writes ``--memory 16`` means
16Gi."""
POD_LABEL = "job.volcano.sh"
"""Users select the pods of such a job by this label."""
LONGEST_NAME_STEM = 40
"""Maximum characters of the stem of a generated name: a pod's name is ``<job>-default0-<index>``
and has less than 63 characters."""


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line. ``minimum`` None: all replicas start together or none does.

    ``time``: the job's deadline and expected run time. ``array``: indexes, of which ``replicas``
    run concurrently and independently. ``after``: dependencies on other jobs. ``submit_directory``:
    where a script was submitted. ``slurm_name``: the value of ``SLURM_JOB_NAME`` for a script with
    ``#SBATCH`` lines. ``reservation``: an AdvanceReservation. ``data``: entries of
    ``spec.dataSets``. ``retries``: how often all pods start again after one failed; in an array,
    how often each index does.
    """

    name: str
    namespace: str = "default"
    image: str = DEFAULT_IMAGE
    replicas: int = 1
    minimum: int | None = None
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    queue: str = "default"
    priority_class: str = ""
    run_seconds: float | None = None
    exit_code: int | None = None
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    workdir: str = ""
    submit_directory: str = ""
    slurm_name: str = ""
    time: timedelta | None = None
    array: str = ""
    after: str = ""
    reservation: str = ""
    data: tuple[Document, ...] = ()
    retries: int = 0


class Array(msgspec.Struct, frozen=True):
    """The indexes of an array, and how many of them run concurrently."""

    indexes: str
    at_once: int


def document(spec: RunSpec) -> Document:
    """The Job's manifest. Requests alone set no limits; limits alone also set the requests."""
    resources = {"requests": spec.requests or spec.limits or DEFAULT_REQUESTS}
    if spec.limits:
        resources["limits"] = spec.limits
    container: Document = {
        "name": spec.name,
        "image": spec.image,
        "imagePullPolicy": "IfNotPresent",
        "resources": resources,
    }
    if spec.command:
        container["command"] = list(spec.command)
    if spec.workdir:
        container["workingDir"] = spec.workdir
    if variables := _variables(spec):
        container["env"] = variables
    metadata: Document = {"labels": {POD_LABEL: spec.name}}
    if annotations := _pod_annotations(spec):
        metadata["annotations"] = annotations
    pod = {"restartPolicy": "Never", "containers": [container]}
    task = {"replicas": spec.replicas, "template": {"metadata": metadata, "spec": pod}}
    job_spec: Document = {"queue": spec.queue, "tasks": [task]}
    if spec.data:
        job_spec["dataSets"] = list(spec.data)
    if spec.minimum is not None:
        job_spec["minAvailable"] = spec.minimum
    if spec.array:
        job_spec["array"] = {"indexes": spec.array}
        if spec.retries:
            job_spec["array"]["maxRetries"] = spec.retries
        job_spec.setdefault("minAvailable", 1)
    elif spec.retries:
        job_spec["maxRetry"] = spec.retries + 1  # the first attempt counts
        job_spec["policies"] = [{"event": "PodFailed", "action": "RestartJob"}]
    if spec.time is not None:
        job_spec["activeDeadlineSeconds"] = math.ceil(spec.time.total_seconds())
        job_spec["runningEstimate"] = f"{job_spec['activeDeadlineSeconds']}s"
    if spec.priority_class:
        job_spec["priorityClassName"] = spec.priority_class
    named: Document = {"name": spec.name, "namespace": spec.namespace}
    notes = {keys.AFTER: spec.after, keys.RESERVATION: spec.reservation}
    if notes := {key: value for key, value in notes.items() if value}:
        named["annotations"] = notes
    return {
        "apiVersion": kinds.JOBS.api_version,
        "kind": kinds.JOBS.kind,
        "metadata": named,
        "spec": job_spec,
    }


def amounts(
    requests: dict[str, str],
    limits: dict[str, str],
    *,
    cpus: str | None = None,
    memory: str | None = None,
    gpus: int | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Requests and limits of a pod, including the short options.

    Devices are limits, too, because Kubernetes rejects requests without limits for them. Raises
    ValueError for a resource that is given twice, and for an implausibly small memory.
    """
    short = {"cpu": cpus, "memory": memory, GPU: None if gpus is None else str(gpus)}
    short_amounts = {name: amount for name, amount in short.items() if amount is not None}
    if twice := [name for name in short_amounts if name in requests]:
        raise ValueError(f"{twice[0]} is in --requests too; set it once")
    if memory is not None and 0 < units.quantity(memory) < LEAST_MEMORY_BYTES:
        raise ValueError(f"a memory of {memory} bytes is too small; write {memory}Gi or {memory}Mi")
    if not short_amounts:
        return requests, limits
    wanted = {**DEFAULT_REQUESTS, **limits, **requests, **short_amounts}
    wanted = {name: amount for name, amount in wanted.items() if amount != "0"}
    devices = {GPU: short_amounts[GPU]} if gpus else {}
    return wanted, {**limits, **devices}


def array(text: str) -> Array:
    """``0-999%50``; without a ``%`` all run concurrently. Raises ValueError."""
    written, percent, at_once = text.partition("%")
    if problem := indexes.problem(written):
        raise ValueError(f"{problem}; write {indexes.FORM}, {indexes.BOUNDS}")
    count = indexes.count(written)
    if not percent:
        return Array(written, count)
    if not at_once.isdecimal() or int(at_once) == 0:
        raise ValueError(f"{at_once!r} after % is not a number; write 0-999%50 for 50 at once")
    return Array(written, min(int(at_once), count))


def generated_name(image: str, suffix: str) -> str:
    """A name for a job without one: from its image, and a unique suffix."""
    repository = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    stem = re.sub(r"[^a-z0-9]+", "-", repository.lower()).strip("-")
    if not stem or not stem[0].isalpha():
        stem = f"job-{stem}".rstrip("-")
    return f"{stem[:LONGEST_NAME_STEM].rstrip('-')}-{suffix}"


def _variables(spec: RunSpec) -> list[Document]:
    """The container's environment; the user's variables override those of Slurm."""
    values_by_name = dict(spec.environment)
    field_references: list[Document] = []
    if spec.slurm_name:
        slurm = sbatch.variables(spec.name, spec.slurm_name, spec.queue, spec.submit_directory)
        values_by_name = {**slurm, **values_by_name}
        if "SLURMD_NODENAME" not in values_by_name:
            node = {"fieldRef": {"fieldPath": "spec.nodeName"}}
            field_references.append({"name": "SLURMD_NODENAME", "valueFrom": node})
    return [
        *({"name": name, "value": value} for name, value in values_by_name.items()),
        *field_references,
    ]


def _pod_annotations(spec: RunSpec) -> dict[str, str]:
    """The annotations that simulated nodes (run time and exit code) and process nodes (directory of
    submission) read. Real nodes ignore them."""
    annotations = {}
    if spec.submit_directory and not spec.workdir:
        annotations[keys.SUBMIT_DIRECTORY] = spec.submit_directory
    if spec.run_seconds is not None:
        annotations[keys.RUN_SECONDS] = f"{spec.run_seconds:g}"
    if spec.exit_code is not None:
        annotations[keys.EXIT_CODE] = str(spec.exit_code)
    return annotations
