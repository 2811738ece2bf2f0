"""Builds the pods of a job: the task's template plus the pod's name, labels, PodGroup, claims and
hostname, as in Volcano. The names of volumes are derived from their claims, so that the same pod is
built again after a crash.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.pods import data_volumes, plugin_objects, revalidation, volumes
from stromboli.controller.core.tasks import arrays, dependencies, tasks
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Job
from stromboli.shared.jobspec import data_sets, gangs, job_plugins, quota
from stromboli.shared.jobspec.job_plugins import base

ATTEMPT, ARRAY_INDEX, ARRAY_SIZE = "STROM_ATTEMPT", "STROM_ARRAY_INDEX", "STROM_ARRAY_SIZE"
"""Environment variables of every container: the attempt of its task and index, from 1; in an array
also the index and the number of indexes.
"""


class Blocker(msgspec.Struct, frozen=True):
    """Why no pod of a job can be created: the Event's reason, message and type."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Warning"


def group_name(job: Job) -> str:
    """The name of the job's PodGroup, which contains the job's uid so that no other job has it."""
    return f"{job.metadata.name}-{job.metadata.uid}"


def group_key(job: Job) -> str:
    """The key of the job's PodGroup."""
    return f"{job.metadata.namespace}/{group_name(job)}"


def blockers(job: Job, plugins: job_plugins.Plugins = job_plugins.BUILT_IN) -> Iterator[Blocker]:
    """The reasons that keep the job Pending until a user changes it."""
    refusals = list(revalidation.refusals(job))
    for violation in refusals:
        yield Blocker("Refused", f"{violation.message}; no pod is created")
    if not refusals:  # no host list can be created for a job that is too large
        for message in plugin_objects.blockers(job, plugins):
            yield Blocker("PluginError", message)
        yield from _of_spec(job)
    for task in tasks.specs(job):
        try:
            quota.total([(gangs.template_of(task), 1)])
        except (msgspec.DecodeError, ValueError) as error:
            yield Blocker("FailedCreate", f"the pod template of task {task.name}: {error}")


def _of_spec(job: Job) -> Iterator[Blocker]:
    """Violations of admission rules by a job that was created before these rules existed."""
    for volume in job.spec.volumes:
        if not volumes.claim_name(job, volume):
            yield Blocker(
                "PVCError",
                f"the volume at {volume.mount_path} has neither volumeClaimName nor volumeClaim, "
                "so no pod is created",
            )
    problems = (dependencies.problem(job), arrays.problem(job), data_volumes.problem(job))
    for problem in filter(None, problems):
        yield Blocker("FailedCreate", f"{problem}, so no pod is created")


def warnings(job: Job, plugins: job_plugins.Plugins = job_plugins.BUILT_IN) -> Iterator[Blocker]:
    """Warnings about errors in plugin arguments that do not prevent the creation of pods."""
    for message in plugin_objects.problems(job, plugins):
        yield Blocker("PluginError", message)


def create(
    job: Job,
    member: tasks.Member,
    plugins: job_plugins.Plugins = job_plugins.BUILT_IN,
    attempt: int = 1,
    data_root: str = data_sets.DEFAULT_ROOT,
    node: str = "",
    annotations: Mapping[str, str] | None = None,
) -> commands.Create:
    """The command that creates one pod of a job without blockers, as attempt ``attempt`` of its
    task and index. ``data_root``: the directory of the nodes' caches of data sets. ``node``: the
    node of a planned pod, and ``annotations`` that go with it; plugins see neither.
    """
    template = member.task.template
    spec: dict[str, Any] = msgspec.json.decode(template.spec) or {}
    spec["schedulerName"] = spec.get("schedulerName") or job.spec.scheduler_name
    if job.spec.priority_class_name and not spec.get("priorityClassName"):
        spec["priorityClassName"] = job.spec.priority_class_name
    if member.task.active_deadline_seconds is not None:
        # The kubelet enforces the deadline, even while the controller is down.
        spec.setdefault("activeDeadlineSeconds", member.task.active_deadline_seconds)
    mount(spec, job, data_root)
    metadata = {
        "name": member.name,
        "labels": {**(template.metadata.labels or {}), **_labels(job, member)},
        "annotations": {
            **(template.metadata.annotations or {}),
            **_annotations(job, member, attempt),
            **data_volumes.annotations(job),
        },
    }
    pod: job_plugins.Pod = {"metadata": metadata, "spec": spec}
    plugin_objects.customize(pod, job, member, plugins)
    _tell_containers(pod, job, member, attempt)
    if node:
        pod["spec"]["nodeName"] = node
        pod["metadata"]["annotations"] |= annotations or {}
    return commands.Create(
        kind=kinds.PODS,
        namespace=job.metadata.namespace,
        name=member.name,
        body=manifests.body(
            kinds.PODS, job, member.name, metadata=pod["metadata"], spec=pod["spec"]
        ),
        owner_uid=job.metadata.uid,
        version=job.status.version,
    )


def _labels(job: Job, member: tasks.Member) -> dict[str, str]:
    labels = {
        keys.TASK_INDEX: str(member.index),
        keys.TASK_SPEC: member.task.name,
        keys.JOB_NAME: job.metadata.name,
        keys.JOB_NAMESPACE: job.metadata.namespace,
        keys.QUEUE_NAME: job.spec.queue,
    }
    parts = member.task.partition_policy
    if parts is not None and parts.partition_size > 0:
        labels[keys.PARTITION_ID] = str(member.index // parts.partition_size)
    return labels | _copied(job.metadata.labels, keys.PREEMPTABLE, keys.COOLDOWN_TIME)


def _annotations(job: Job, member: tasks.Member, attempt: int) -> dict[str, str]:
    task = member.task
    annotations = {
        keys.TASK_INDEX: str(member.index),
        keys.TASK_SPEC: task.name,
        keys.GROUP_NAME: group_name(job),
        keys.JOB_NAME: job.metadata.name,
        keys.QUEUE_NAME: job.spec.queue,
        keys.JOB_VERSION: str(job.status.version),
        keys.JOB_RETRY_COUNT: str(job.status.retry_count),
        keys.TEMPLATE_UID: f"{job.metadata.name}-{task.name}",
        keys.ATTEMPT: str(attempt),
    }
    if job.status.array is not None:
        annotations[keys.INDEX_RETRY] = str(job.status.array.retries.get(str(member.index), 0))
    if task.topology_policy:
        annotations[keys.NUMA_TOPOLOGY_POLICY] = task.topology_policy
    budget = _copied(job.metadata.annotations, keys.JDB_MIN_AVAILABLE) or _copied(
        job.metadata.annotations, keys.JDB_MAX_UNAVAILABLE
    )
    copied = _copied(
        job.metadata.annotations,
        keys.PREEMPTABLE,
        keys.COOLDOWN_TIME,
        keys.REVOCABLE_ZONE,
        keys.TRACEPARENT,
    )
    return annotations | copied | budget


def _copied(source: dict[str, str] | None, *wanted: str) -> dict[str, str]:
    return {key: source[key] for key in wanted if source and key in source}


def _tell_containers(pod: job_plugins.Pod, job: Job, member: tasks.Member, attempt: int) -> None:
    """Set the environment variables: a program may resume where the previous attempt ended, and in
    an array it needs its index.
    """
    variables = [{"name": ATTEMPT, "value": str(attempt)}]
    if job.spec.array is not None:
        variables += [
            {"name": ARRAY_INDEX, "value": str(member.index)},
            {"name": ARRAY_SIZE, "value": str(arrays.size(job))},
        ]
    for container in base.containers(pod):
        base.add_env(container, variables)


def mount(spec: dict[str, Any], job: Job, data_root: str) -> None:
    """Mount the job's claims in every container (not in init containers), each claim once; and its
    data sets, in all containers."""
    mounted: dict[str, Any] = {}
    for volume in job.spec.volumes:
        claim = volumes.claim_name(job, volume)
        if claim in mounted:
            continue
        name = f"{job.metadata.name}-{hashlib.sha256(claim.encode()).hexdigest()[:12]}"
        mounted[claim] = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        mount = {"name": name, "mountPath": volume.mount_path}
        for container in spec.get("containers") or ():
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    if mounted:
        spec["volumes"] = [*(spec.get("volumes") or ()), *mounted.values()]
    data_volumes.mount(spec, job, data_root)
