"""The commands that a job's phase requires: pods, PodGroup, other objects, counts and conditions.

All commands are idempotent: names are derived from the job, and a command whose effect exists does
nothing. Therefore one stage contains all commands, except the commands that depend on their
success.
"""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from stromboli.controller.core import (
    commands,
    lifecycle,
    partial_restarts,
    pending_reason,
)
from stromboli.controller.core.jobs import job_events, job_objects, job_pods, policies
from stromboli.controller.core.pod_groups import pod_groups
from stromboli.controller.core.pods import debug_tool_pods, plugin_objects, pods, volumes
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import tasks
from stromboli.shared import snapshot
from stromboli.shared.api import core, kinds
from stromboli.shared.api.batch import Job

MOST_PODS = 200
"""Pods created or deleted in one reconcile. Building one takes about 50 µs, so a reconcile takes
10 ms at most; a larger job is reconciled again immediately."""
_NO_PODS = "the job has no replicas, so it does not change until it is scaled or deleted"
_CLEARED = lifecycle.FINISHED | {"Aborted"}
"""Phases in which the plugins' objects are deleted. A restart keeps them, so that names and keys
stay valid."""


def effects(
    cache: controller_cache.ControllerCache,
    job: Job,
    observed: job_pods.JobPods,
    events: commands.Stage,
    now: datetime,
) -> commands.Plan:
    """The commands that the job's phase requires, with ``events``, then the status that results."""
    stage: list[commands.Command] = []
    phase, controlled = job.status.state.phase, job.status.controlled_resources
    why = ""
    if phase in lifecycle.STOPPING:
        stage += _delete_pods(observed)
        if not partial_restarts.is_partial(job):
            stage += job_objects.delete_group(cache, job)
            stage += debug_tool_pods.stopped(cache, job)
        if phase in _CLEARED:
            stage += plugin_objects.removals(job, cache.plugins)
            stage += debug_tool_pods.removals(job, ())
            controlled = debug_tool_pods.without(plugin_objects.others_controlled(job))
    else:
        blockers = list(job_objects.blockers(cache, job))
        stage += [job_events.about(job, it.type, it.reason, it.message, now) for it in blockers]
        why = pending_reason.reasons((it.reason, it.message) for it in blockers)
        stage += [
            job_events.about(job, "Warning", it.reason, it.message, now)
            for it in pods.warnings(job, cache.plugins)
        ]
        stage += [
            job_events.about(job, "Warning", "NotCarriedOut", f"not executed: {line}", now)
            for line in policies.unsupported(job)
        ]
        if not blockers:
            stage += job_objects.group_commands(cache, job)
            stage += volumes.written_back(job)
            controlled = job_objects.controlled(cache, job)
            if controlled != job.status.controlled_resources:
                stage += job_objects.creations(cache, job)
            of_pods = list(_pod_commands(cache, job, observed, now))
            stage += of_pods
            pod_events = [it for it in of_pods if isinstance(it, commands.RecordEvent)]
            why = pending_reason.reasons((it.reason, it.message) for it in pod_events)
            stage += debug_tool_pods.carried_out(cache, job, lambda: observed.pods, now)
    if why:
        stage += pending_reason.noted(kinds.JOBS, job, why)
    stage += events
    if phase not in lifecycle.STOPPING and not any(task.replicas for task in job.spec.tasks):
        stage.append(job_events.about(job, "Normal", "NoPods", _NO_PODS, now))
    # The pending reason is removed last, since the API server may reject a command of the stage.
    cleared = () if why else pending_reason.noted(kinds.JOBS, job, "")
    counted = tasks.status_with(job.status, observed.counts, tasks.min_available(job))
    final = msgspec.structs.replace(counted, controlled_resources=controlled)
    stages: commands.Plan = (tuple(stage),)
    if final.controlled_resources != job.status.controlled_resources:
        # The status may name objects only once they exist, and drop them only once they are gone.
        stages = (*stages, (commands.PatchJobStatus(job=job, status=final),))
    elif final != job.status:
        stages = ((*stage, commands.PatchJobStatus(job=job, status=final)),)
    return tuple(it for it in (*stages, cleared) if it)


def _pod_commands(
    cache: controller_cache.ControllerCache, job: Job, observed: job_pods.JobPods, now: datetime
) -> Iterator[commands.Command]:
    """The commands that create missing pods and delete surplus pods, once the PodGroup was admitted
    to its queue."""
    group = cache.pod_group(pods.group_key(job))
    if group is None or cache.is_terminating(group) or not cache.is_enqueued(group):
        return
    if pod_groups.is_of_earlier_version(job, group):
        return
    most = min(MOST_PODS, tasks.room(cache, job, lambda: observed.pods))
    reserved = cache.plans.reserved_names(job.metadata.uid)
    started = pod_groups.started(cache, job, group)
    for task in (it for it in tasks.specs(job) if it.name in started):
        for member, state in _missing(cache, job, observed, task.name, most + len(reserved)):
            if member.name in reserved:
                continue
            if state is None and most > 0:
                most -= 1
                attempt = cache.published.attempts(job, task.name, member.index) + 1
                try:
                    yield pods.create(job, member, cache.plugins, attempt, cache.data_root)
                except plugin_objects.PluginFailedError as error:
                    yield job_events.about(job, "Warning", "PluginError", str(error), now)
            elif isinstance(state, core.Pod) and not cache.is_terminating(state):
                name = member.name
                why = f"pod {name} cannot be created: a pod of this name belongs to another owner"
                yield job_events.about(job, "Warning", "FailedCreate", why, now)
    yield from _delete_pods(observed)


def _missing(
    cache: controller_cache.ControllerCache,
    job: Job,
    observed: job_pods.JobPods,
    task: str,
    most: int,
) -> list[tuple[tasks.Member, snapshot.State]]:
    """The first missing pods of a task, each with the cached object that has its name, if any: as
    many as are needed to include ``most`` free names.
    """
    looked_at = max(most, 1)
    while True:
        missing_pods = [
            (member, tasks.name_state(cache, job, member.name))
            for member in observed.missing(task, looked_at)
        ]
        free = sum(state is None for _, state in missing_pods)
        if free >= most or len(missing_pods) < looked_at:
            return missing_pods
        looked_at *= 2


def _delete_pods(observed: job_pods.JobPods) -> Iterator[commands.Delete]:
    for pod in observed.first_to_delete(MOST_PODS):
        yield commands.Delete(
            kind=kinds.PODS,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=pod.metadata.uid,
        )
