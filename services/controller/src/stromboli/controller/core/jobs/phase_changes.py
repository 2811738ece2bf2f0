"""The status write of a phase change: by a policy, by time, or by the job's pods.

The write is the only command of its stage that changes the job, and the effects of the new phase
are planned once the write is observed. So a crash after the write loses nothing, and no effect
precedes the write of its phase.
"""

from datetime import datetime

import msgspec

from stromboli.controller.core import commands, lifecycle
from stromboli.controller.core.jobs import (
    event_messages,
    job_dependencies,
    job_events,
    job_objects,
    job_pods,
    lifecycle_inputs,
    policies,
    policy_events,
    status_transitions,
)
from stromboli.controller.core.pod_groups import pod_groups
from stromboli.controller.core.pods import pods
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import tasks
from stromboli.controller.core.workloads import cron_history
from stromboli.shared.api import batch
from stromboli.shared.api.batch import Job

RULED = ("Pending", "Running", "Restarting")
"""Phases in which policies and the job's deadline apply."""


def advance(
    cache: controller_cache.ControllerCache, job: Job, observed: job_pods.JobPods, now: datetime
) -> commands.Plan:
    """The status write of a phase change, if one is due; for a new job, together with its first
    objects."""
    phase = tasks.phase_of(job)
    if phase == "":
        return _accept(cache, job, observed.counts, now)
    group = cache.pod_group(pods.group_key(job))
    ruling = policies.PolicyDecision(None, ())
    if phase in RULED:
        ruling = policies.evaluate(cache, job, observed, group, now)
        if ruling.policy_action is not None:
            requested = ruling.policy_action.action
            status = status_transitions.after(
                job, requested, observed.counts, now, policy_action=ruling.policy_action
            )
            why = f"Start to execute action {requested}: {ruling.policy_action.why}"
            acted = job_events.about(job, "Normal", "ExecuteAction", why, now, recurs=True)
            # In the same stage as the write, so that a crash loses neither.
            *first, write = _change(cache, job, status, now)
            return (*first, (acted, *write))
        if policy_events.is_overdue(job, now) and not ruling.decides_deadline:
            why = f"activeDeadlineSeconds {job.spec.active_deadline_seconds} has passed"
            status = status_transitions.after(job, "DeadlineExceeded", observed.counts, now, why)
            return _change(cache, job, status, now)
    if phase == "Pending" and group is not None and pod_groups.is_in_other_queue(cache, job, group):
        why = f"the queue changed from {group.spec.queue} to {job.spec.queue}"
        status = status_transitions.after(job, "QueueChanged", observed.counts, now, why)
        return _change(cache, job, status, now)
    is_possible = phase != "Pending" or not any(job_objects.blockers(cache, job))
    inputs = lifecycle_inputs.collect(cache, job, observed, now)
    event = lifecycle.next_event(inputs) if is_possible else None
    if event is not None and not (event == "Failed" and ruling.delayed):
        why = event_messages.of_event(job, event, inputs, observed.pods)
        return _change(
            cache, job, status_transitions.after(job, event, observed.counts, now, why), now
        )
    if phase == "Pending" and is_possible and job_dependencies.is_to_record(job):
        return ((_write(job, msgspec.structs.replace(job.status, dependencies_met=True)),),)
    if phase in RULED and ruling.delayed != job.status.delayed:
        counted = tasks.status_with(job.status, observed.counts, tasks.min_available(job))
        return ((_write(job, msgspec.structs.replace(counted, delayed=ruling.delayed)),),)
    return ()


def _change(
    cache: controller_cache.ControllerCache, job: Job, status: batch.JobStatus, now: datetime
) -> commands.Plan:
    """The status write of a transition. Pods that the transition ends count as terminating. Jobs
    that exceed a CronJob's history limits are deleted first.
    """
    first = tuple(cron_history.displaced(cache, job, status.state.phase, now))
    write: commands.Stage = (_write(job, job_pods.status_ending_pods(cache, job, status)),)
    return (first, write) if first else (write,)


def _accept(
    cache: controller_cache.ControllerCache, job: Job, counts: tasks.Tally, now: datetime
) -> commands.Plan:
    """The plan for a new job: its PodGroup and its plugins' objects, then its status.

    A job without status is in phase Pending at version 0 by definition, so the PodGroup may be
    created before the status is written, and the scheduler sees it one write sooner. Pods that are
    created with their nodes do not need the status either. If such pods are expected soon, the
    status is written after them: the write, its record and its events would compete with the
    session that places the pods, and with their creation.
    """
    status = status_transitions.after(job, "Accepted", counts, now)
    if any(job_objects.blockers(cache, job)):
        return ((_write(job, status),),)
    if job_dependencies.is_to_record(job):
        # Before the PodGroup: the other jobs may be deleted from now on.
        return ((_write(job, msgspec.structs.replace(status, dependencies_met=True)),),)
    creations = job_objects.new(cache, job)
    status = msgspec.structs.replace(
        status, controlled_resources=job_objects.controlled(cache, job)
    )
    is_planned = any(isinstance(it, commands.PlanPods) for stage in creations for it in stage)
    follows_pods = is_planned or job_objects.expects_planned_pods(cache, job)
    return (*creations, (_write(job, status, follows_pods=follows_pods),))


def _write(
    job: Job, status: batch.JobStatus, *, follows_pods: bool = False
) -> commands.PatchJobStatus:
    return commands.PatchJobStatus(job=job, status=status, follows_pods=follows_pods)
