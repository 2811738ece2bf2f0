"""Child jobs: jobs that flows and crons create.

**No job is created from an outdated cache.** Before a job is created, its owner's status is written
with the owner's resourceVersion as the precondition, even if nothing in it changes. If the cache is
behind, that write is rejected, and the owner is read again. **No end is lost**: a finished job
whose time to live is over is not deleted before its owner has recorded its end (``is_awaited``).
Together these rules ensure that each job is created once.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from stromboli.controller.core import commands, lifecycle, manifests
from stromboli.controller.core.store import controller_cache
from stromboli.shared import keys
from stromboli.shared.api import batch, flow, kinds, meta
from stromboli.shared.api.flow import CronJob, JobFlow
from stromboli.shared.jobspec.validation.queueing import permissions

SECONDS_FROM = 10**9
"""The lowest number in a job's name that means seconds; in minutes it would be the year 3871."""


def is_ours(cache: controller_cache.ControllerCache, spec: dict[str, Any]) -> bool:
    """Whether this controller would manage a job of this spec: the spec names one of our
    schedulers, or it names none and no other batch system is active.
    """
    name = spec.get("schedulerName")
    return name in cache.scheduler_names if name else not cache.sync.claimed


def is_cron_ours(cache: controller_cache.ControllerCache, cron: CronJob) -> bool:
    """Whether this controller creates the jobs of the CronJob."""
    return is_ours(cache, msgspec.json.decode(cron.spec.job_template.spec) or {})


def is_flow_ours(cache: controller_cache.ControllerCache, job_flow: JobFlow) -> bool:
    """Whether this controller creates the jobs of the flow: no template of the flow names another
    scheduler. Until the first job is started, a missing template counts as one that names no
    scheduler; afterwards templates may be deleted."""
    if unknown_templates(cache, job_flow) and not _has_started(cache, job_flow):
        return is_ours(cache, {}) and _are_known_ours(cache, job_flow)
    return _are_known_ours(cache, job_flow)


def unknown_templates(cache: controller_cache.ControllerCache, job_flow: JobFlow) -> list[str]:
    """Keys of missing templates from which no job was started. Empty unless the flow has other jobs
    and all of them are ours."""
    entries = [it for it in job_flow.spec.flows if _current_spec(cache, job_flow, it) is None]
    started = {it.name for it in job_flow.status.job_status_list}
    missing = [it.name for it in entries if flow_job_name(job_flow, it.name) not in started]
    is_any_known = len(entries) < len(job_flow.spec.flows)
    if not is_any_known or not _are_known_ours(cache, job_flow):
        return []
    return [f"{job_flow.metadata.namespace}/{name}" for name in missing]


def _are_known_ours(cache: controller_cache.ControllerCache, job_flow: JobFlow) -> bool:
    specs = (_current_spec(cache, job_flow, entry) for entry in job_flow.spec.flows)
    known = [spec for spec in specs if spec is not None]
    return all(is_ours(cache, spec) for spec in known or [{}])


def _has_started(cache: controller_cache.ControllerCache, job_flow: JobFlow) -> bool:
    return bool(job_flow.status.job_status_list or cache.children(job_flow))


def _current_spec(
    cache: controller_cache.ControllerCache, job_flow: JobFlow, entry: flow.Flow
) -> dict[str, Any] | None:
    """The spec that names the scheduler of a flow's job: the template with the patch; without a
    template, the existing job's; without both, the patch if it names a scheduler; else None."""
    namespace, name = job_flow.metadata.namespace, flow_job_name(job_flow, entry.name)
    template = cache.get(kinds.JOB_TEMPLATES, f"{namespace}/{entry.name}")
    job = cache.job(f"{namespace}/{name}")
    if template is None and job is not None and job_flow.metadata.controls(job.metadata):
        return {"schedulerName": job.spec.scheduler_name}
    spec = {} if template is None else msgspec.json.decode(template.spec) or {}
    patch = {} if entry.patch is None else msgspec.json.decode(entry.patch.job_spec) or {}
    return None if template is None and not patch.get("schedulerName") else {**spec, **patch}


def is_awaited(cache: controller_cache.ControllerCache, job: batch.Job) -> bool:
    """Whether the flow or cron that created the job has not recorded its end yet.

    If the owner is unreadable or absent from the cache, its record is unknown, and the job is kept;
    if the owner was deleted, garbage collection deletes the job.
    """
    owner = job.metadata.controller
    kind = None if owner is None else _MAKERS.get((owner.api_version, owner.kind))
    if owner is None or kind is None:
        return False
    maker = cache.state(kind, f"{job.metadata.namespace}/{owner.name}")
    if not isinstance(maker, meta.Object) or maker.metadata.uid != owner.uid:
        return True
    if isinstance(maker, JobFlow):
        return is_flow_ours(cache, maker) and _is_awaited_by_flow(maker, job)
    assert isinstance(maker, CronJob)
    return is_cron_ours(cache, maker) and _is_awaited_by_cron(maker, job)


_MAKERS = {(kind.api_version, kind.kind): kind for kind in (kinds.JOB_FLOWS, kinds.CRON_JOBS)}


def _is_awaited_by_flow(job_flow: JobFlow, job: batch.Job) -> bool:
    name, job_statuses = job.metadata.name, job_flow.status.job_status_list
    is_member = any(flow_job_name(job_flow, entry.name) == name for entry in job_flow.spec.flows)
    return is_member and not any(
        it.name == name and it.state in lifecycle.FINISHED for it in job_statuses
    )


def _is_awaited_by_cron(cron: CronJob, job: batch.Job) -> bool:
    status, served, ended = cron.status, scheduled_at(cron, job), ended_at(job)
    if served is None:
        return False
    is_noted = status.last_schedule_time is not None and served <= status.last_schedule_time
    is_under_way = any(it.uid == job.metadata.uid for it in status.active)
    success = ended if job.status.state.phase == "Completed" else None
    is_counted = success is None or (
        status.last_successful_time is not None and success <= status.last_successful_time
    )
    return not (is_noted and is_counted) or is_under_way


def flow_job_name(job_flow: JobFlow, entry: str) -> str:
    """The name of a flow's job: ``<flow>-<template>``."""
    return f"{job_flow.metadata.name}-{entry}"


def cron_job_name(cron: CronJob, at: datetime) -> str:
    """The name of a CronJob's job: ``<cron>-<unix minutes>``, or unix seconds for a time within a
    minute (``@every 90s``)."""
    seconds = int(at.timestamp())
    return f"{cron.metadata.name}-{seconds // 60 if seconds % 60 == 0 else seconds}"


def scheduled_at(cron: CronJob, job: batch.Job) -> datetime | None:
    """The scheduled time of a CronJob's job, from its name, which users cannot edit."""
    number = job.metadata.name.removeprefix(f"{cron.metadata.name}-")
    if not number.isascii() or not number.isdigit() or len(number) > len(str(SECONDS_FROM)):
        return None
    seconds = int(number) if int(number) >= SECONDS_FROM else 60 * int(number)
    return datetime.fromtimestamp(seconds, UTC)


def create(
    cache: controller_cache.ControllerCache,
    kind: kinds.Kind[Any],
    owner: meta.Object,
    name: str,
    spec: dict[str, Any],
    labels: dict[str, str],
    annotations: dict[str, str],
) -> commands.Create:
    """Create a job of ``owner``. The submitter is always the owner's, even if the template names
    another one. The job always names a scheduler, even while the webhook is down: without one no
    controller would manage it."""
    annotations = {
        key: value for key, value in annotations.items() if key not in (keys.USER, keys.USER_GROUPS)
    } | permissions.identity_of(owner.metadata)
    spec = {**spec, "schedulerName": spec.get("schedulerName") or cache.usual_scheduler}
    metadata = {
        "name": name,
        "namespace": owner.metadata.namespace,
        "ownerReferences": [manifests.owner(kind, owner)],
        **({"labels": labels} if labels else {}),
        **({"annotations": annotations} if annotations else {}),
    }
    document = {
        "apiVersion": kinds.JOBS.api_version,
        "kind": kinds.JOBS.kind,
        "metadata": metadata,
        "spec": spec,
    }
    return commands.Create(
        kind=kinds.JOBS,
        namespace=owner.metadata.namespace,
        name=name,
        body=manifests.encode(document),
        owner_uid=owner.metadata.uid,
    )


def remove(job: batch.Job) -> commands.Delete:
    """Delete a job and the objects that it owns."""
    return commands.Delete(
        kind=kinds.JOBS,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        propagation="Background",
    )


def name_conflict(cache: controller_cache.ControllerCache, owner: meta.Object, name: str) -> str:
    """Why a job cannot be created under this name; empty if the name is not in use."""
    state = cache.state(kinds.JOBS, f"{owner.metadata.namespace}/{name}")
    if state is None:
        return ""
    if not isinstance(state, meta.Object):
        return f"job {name} exists but cannot be decoded: {state.reason}"
    maker = state.metadata.controller
    if maker is not None and maker.uid == owner.metadata.uid:
        return f"job {name} exists already"
    return f"job {name} exists and has another owner: delete it or recreate it under another name"


def status_first(
    kind: kinds.Kind[Any],
    before: flow.CronJob | JobFlow,
    status: flow.CronJobStatus | flow.JobFlowStatus,
    *effects: commands.Stage,
) -> commands.Plan:
    """The status write, then the stages that depend on it. The write is left out if the status is
    unchanged and no object is created."""
    makes = any(isinstance(it, commands.Create) for stage in effects for it in stage)
    write: commands.Stage = ()
    if makes or status != before.status:
        write = (write_status(kind, before, status),)
    return tuple(stage for stage in (write, *effects) if stage)


def write_status(
    kind: kinds.Kind[Any], before: meta.Object, status: msgspec.Struct
) -> commands.Patch:
    """Replace the status, with the resourceVersion from which it was computed as the
    precondition."""
    version_test = manifests.test("/metadata/resourceVersion", before.metadata.resource_version)
    change = manifests.put("/status", msgspec.to_builtins(status))
    return manifests.json_patch(kind, before, version_test, change, subresource="status")


def ended_at(job: batch.Job) -> datetime | None:
    """The time at which a finished job entered its final phase; None if it is not recorded."""
    state = job.status.state
    return state.last_transition_time if state.phase in lifecycle.FINISHED else None
