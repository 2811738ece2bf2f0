"""A job's next step: from what is to what has to be done.

Everything is derived from objects, in this order:

1. A job that is unreadable, going or not ours is left alone. One of which more was told than the
   cache has is read anew first.
2. If its phase has to change, the *status is written and nothing else*: the intent comes first.
3. Otherwise everything that the phase asks for is done at once, since all of it may be repeated:
   pods, PodGroup, what plugins add, counts, and events about what has not been told yet.

So a crash between any two commands, and a repetition of any of them, lead to the same end.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

import msgspec

from stromboli.controller.core import (
    commands,
    lifecycle,
    manifests,
    partial_restarts,
    pending_reason,
)
from stromboli.controller.core.jobs import (
    catch_up,
    event_messages,
    job_commands,
    job_dependencies,
    job_pods,
    lifecycle_inputs,
    policies,
    policy_events,
    status_transitions,
)
from stromboli.controller.core.pod_groups import pod_groups
from stromboli.controller.core.pods import debug_tool_pods, plugin_objects, pods, volumes
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.controller.core.tasks import tasks
from stromboli.controller.core.workloads import child_jobs, cron_history
from stromboli.shared import keys, snapshot
from stromboli.shared.api import batch, core, kinds
from stromboli.shared.api.batch import Job
from stromboli.shared.formats import durations

MOST_PODS = 200
"""Pods created or deleted in one step: building one takes about 50 µs, so a step stalls nothing; a
larger job takes its next step immediately."""
_RULED = ("Pending", "Running", "Restarting")
"""Phases in which policies and the job's time are looked at."""
_NO_PODS = "its tasks ask for no pods: it stays as it is until it is scaled or deleted"
_CLEARED = lifecycle.FINISHED | {"Aborted"}
"""Phases without the plugins' objects. They stay over a restart: names and keys stay true."""


def reconcile(cache: controller_cache.ControllerCache, key: str, now: datetime) -> commands.Plan:
    """The job's next step. Empty when nothing is to do until something changes or is ``due``.

    Raises IllegalMoveError for a phase that no controller of this kind writes. Costs what changed
    since the last step; one walk over all pods where the job itself changed (``job_pods``).
    """
    job = cache.job(key)
    if job is None and cache.state(kinds.JOBS, key) is not None:
        return ()  # frozen: it cannot be read
    behind = catch_up.reads_needed(cache, key)
    if behind:
        return (behind,)
    departed = event_history.due_departure(
        cache.published, key, job.metadata.uid if job else "", now
    )
    if job is None:
        return (departed,)
    if not cache.is_ours(job):
        return (departed, tuple(_left_alone(cache, job, now)))
    return (departed, *_step_of(cache, job, now))


def _left_alone(
    cache: controller_cache.ControllerCache, job: Job, now: datetime
) -> Iterator[commands.RecordEvent]:
    """What a job is told that names no scheduler: it was written while another system acted, and
    admission let it pass. As long as that acts it may be the other's, and is never ours: how far
    the other got with it is not known here."""
    is_over = job.status.state.phase in lifecycle.FINISHED or cache.is_going(job)
    if job.spec.scheduler_name or cache.sync.claimed or is_over:
        return
    why = (
        "it names no scheduler, and no other system acts that could be meant, so nobody runs it: "
        f"delete it and submit it again; without a name it gets {cache.usual_scheduler!r} now"
    )
    yield commands.event_about(kinds.JOBS, job, "Warning", "NoScheduler", why, now)


def _step_of(cache: controller_cache.ControllerCache, job: Job, now: datetime) -> commands.Plan:
    observed = job_pods.refresh(cache, job)
    told = _tell(cache, job, observed, now)
    if cache.is_going(job):
        return (told,)
    if _has_expired(cache, job, now):
        return (told, (_remove(job),))
    wishes = cache.user_commands_for(controller_cache.ReconcileKey("job", job.metadata.key))
    if wishes and job.status.state.phase:
        return (told, *job_commands.carry_out(cache, job, wishes[0], observed.counts, now))
    advance = _advance(cache, job, observed, now)
    if not advance:
        return _effects(cache, job, observed, told, now)
    # A phase that passes at once is told all the same, before the next one. That a pod is gone is
    # told once a policy has taken it up: a kill in between must not lose it. One that this phase
    # has ended concerns no policy, and what ended it is not known any more in the next phase.
    return (tuple(it for it in told if not event_history.concerns_policies(job, it)), *advance)


def due(cache: controller_cache.ControllerCache, key: str, now: datetime) -> datetime | None:
    """When the job needs a look although nothing changed: for its time to live or to run, for a
    policy that waits, or for the end of a back-off."""
    job = cache.job(key)
    if job is None or not cache.is_ours(job) or cache.is_going(job):
        return None
    # What waits for its maker, or for another job, is looked at when that changes.
    times = [] if _is_awaited(cache, job) else [expires_at(job)]
    if job.status.state.phase in _RULED:
        times += [job.status.deadline_at, job.status.retry_at]
        pods = cache.pods_of(job.metadata.uid) if policies.watches_pending(job) else ()
        times.append(policies.due(job, pods))
    return min((at for at in times if at is not None), default=None)


def expires_at(job: Job) -> datetime | None:
    """When a finished job is to be removed, from what stands in its status."""
    ttl, state = job.spec.ttl_seconds_after_finished, job.status.state
    if ttl is None or state.phase not in lifecycle.FINISHED or state.last_transition_time is None:
        return None
    return durations.later(state.last_transition_time, ttl)


# Step 2: the phase


def _advance(
    cache: controller_cache.ControllerCache, job: Job, observed: job_pods.JobPods, now: datetime
) -> commands.Plan:
    """The status write for a phase that has to change; for a new job, what comes with it."""
    phase = tasks.phase_of(job)
    if phase == "":
        return _accept(cache, job, observed.counts, now)
    group = cache.pod_group(_group_key(job))
    ruling = policies.PolicyDecision(None, ())
    if phase in _RULED:
        ruling = policies.evaluate(cache, job, observed, group, now)
        if ruling.policy_action is not None:
            asked = ruling.policy_action.action
            status = status_transitions.after(
                job, asked, observed.counts, now, policy_action=ruling.policy_action
            )
            why = f"Start to execute action {asked}: {ruling.policy_action.why}"
            acted = _about(job, "Normal", "ExecuteAction", why, now, recurs=True)
            # Said with the write, so that a kill in between loses neither.
            *first, write = _change(cache, job, status, now)
            return (*first, (acted, *write))
        if policy_events.is_overdue(job, now):
            why = f"activeDeadlineSeconds {job.spec.active_deadline_seconds} are over"
            status = status_transitions.after(job, "DeadlineExceeded", observed.counts, now, why)
            return _change(cache, job, status, now)
    is_possible = phase != "Pending" or not any(_obstacles(cache, job))
    found = lifecycle_inputs.collect(cache, job, observed, now)
    event = lifecycle.next_event(found) if is_possible else None
    if event is not None and not (event == "Failed" and ruling.delayed):
        why = event_messages.of_event(job, event, found, observed.pods)
        return _change(
            cache, job, status_transitions.after(job, event, observed.counts, now, why), now
        )
    if phase in _RULED and ruling.delayed != job.status.delayed:
        counted = tasks.status_with(job.status, observed.counts, tasks.min_available(job))
        return ((_write(job, msgspec.structs.replace(counted, delayed=ruling.delayed)),),)
    return ()


def _change(
    cache: controller_cache.ControllerCache, job: Job, status: batch.JobStatus, now: datetime
) -> commands.Plan:
    """The status write of a transition. Pods that it ends count as terminating in it, and what a
    CronJob keeps no longer goes first."""
    first = tuple(cron_history.displaced(cache, job, status.state.phase, now))
    write: commands.Stage = (_write(job, job_pods.status_ending_pods(cache, job, status)),)
    return (first, write) if first else (write,)


def _accept(
    cache: controller_cache.ControllerCache, job: Job, counts: tasks.Tally, now: datetime
) -> commands.Plan:
    """A new job: its PodGroup and its plugins' objects, then its status.

    Phase Pending at version 0 is what a job without status is anyway, so nothing is lost by
    letting the PodGroup go first, and the scheduler sees it one write sooner.
    """
    status = status_transitions.after(job, "Accepted", counts, now)
    if any(_obstacles(cache, job)):
        return ((_write(job, status),),)
    made = (*_group_commands(cache, job), *_owned_objects(cache, job))
    status = msgspec.structs.replace(status, controlled_resources=_controlled(cache, job))
    write: commands.Stage = (_write(job, status),)
    return (made, write) if made else (write,)


def _obstacles(cache: controller_cache.ControllerCache, job: Job) -> Iterator[pods.Blocker]:
    """What keeps the job Pending."""
    yield from pods.blockers(job, cache.plugins)
    yield from job_dependencies.unmet_conditions(cache, job)


def _write(job: Job, status: batch.JobStatus) -> commands.PatchJobStatus:
    return commands.PatchJobStatus(job=job, status=status)


# Step 3: what the phase asks for


def _effects(
    cache: controller_cache.ControllerCache,
    job: Job,
    observed: job_pods.JobPods,
    told: commands.Stage,
    now: datetime,
) -> commands.Plan:
    stage: list[commands.Command] = []
    phase, controlled = job.status.state.phase, job.status.controlled_resources
    why = ""
    if phase in lifecycle.STOPPING:
        stage += _delete_pods(observed)
        if not partial_restarts.is_partial(job):
            stage += _delete_group(cache, job)
            stage += debug_tool_pods.stopped(cache, job)
        if phase in _CLEARED:
            stage += plugin_objects.removals(job, cache.plugins)
            stage += debug_tool_pods.removals(job, ())
            controlled = debug_tool_pods.without(plugin_objects.others_controlled(job))
    else:
        obstacles = list(_obstacles(cache, job))
        stage += [_about(job, it.type, it.reason, it.message, now) for it in obstacles]
        why = pending_reason.reasons((it.reason, it.message) for it in obstacles)
        stage += [
            _about(job, "Warning", it.reason, it.message, now)
            for it in pods.warnings(job, cache.plugins)
        ]
        stage += [
            _about(job, "Warning", "NotCarriedOut", f"not carried out: {line}", now)
            for line in policies.unsupported(job)
        ]
        if not obstacles:
            stage += _group_commands(cache, job)
            stage += volumes.written_back(job)
            controlled = _controlled(cache, job)
            if controlled != job.status.controlled_resources:
                stage += _owned_objects(cache, job)
            of_pods = list(_pod_commands(cache, job, observed, now))
            stage += of_pods
            said = [it for it in of_pods if isinstance(it, commands.RecordEvent)]
            why = pending_reason.reasons((it.reason, it.message) for it in said)
            stage += debug_tool_pods.carried_out(cache, job, lambda: observed.pods)
    if why:
        stage += pending_reason.noted(kinds.JOBS, job, why)
    stage += told
    if phase not in lifecycle.STOPPING and not any(task.replicas for task in job.spec.tasks):
        stage.append(_about(job, "Normal", "NoPods", _NO_PODS, now))
    # That nothing holds it up is known once all of this was done, as nobody may refuse it.
    cleared = () if why else pending_reason.noted(kinds.JOBS, job, "")
    counted = tasks.status_with(job.status, observed.counts, tasks.min_available(job))
    final = msgspec.structs.replace(counted, controlled_resources=controlled)
    stages: commands.Plan = (tuple(stage),)
    if final.controlled_resources != job.status.controlled_resources:
        # What the status says is there or gone has to be so first.
        stages = (*stages, (_write(job, final),))
    elif final != job.status:
        stages = ((*stage, _write(job, final)),)
    return tuple(it for it in (*stages, cleared) if it)


def _pod_commands(
    cache: controller_cache.ControllerCache, job: Job, observed: job_pods.JobPods, now: datetime
) -> Iterator[commands.Command]:
    """Make what is missing, remove what is too much: once the PodGroup has entered its queue."""
    group = cache.pod_group(_group_key(job))
    if group is None or cache.is_going(group) or not cache.is_enqueued(group):
        return
    if manifests.version_of(group) < job.status.version:
        return
    most = min(MOST_PODS, tasks.room(cache, job, lambda: observed.pods))
    started = pod_groups.started(cache, job, group)
    for task in (it for it in tasks.specs(job) if it.name in started):
        for member, found in _missing(cache, job, observed, task.name, most):
            if found is None and most > 0:
                most -= 1
                attempt = cache.published.attempts(job, task.name, member.index) + 1
                try:
                    yield pods.create(job, member, cache.plugins, attempt)
                except plugin_objects.PluginFailedError as error:
                    yield _about(job, "Warning", "PluginError", str(error), now)
            elif isinstance(found, core.Pod) and not cache.is_going(found):
                name = member.name
                why = f"pod {name} cannot be made: a pod of this name belongs to somebody else"
                yield _about(job, "Warning", "FailedCreate", why, now)
    yield from _delete_pods(observed)


def _missing(
    cache: controller_cache.ControllerCache,
    job: Job,
    observed: job_pods.JobPods,
    task: str,
    most: int,
) -> list[tuple[tasks.Member, snapshot.State]]:
    """The first missing pods of a task with what stands under their names: as many as have so many
    free names among them, if there are."""
    looked_at = max(most, 1)
    while True:
        found = [
            (member, tasks.name_state(cache, job, member.name))
            for member in observed.missing(task, looked_at)
        ]
        free = sum(state is None for _, state in found)
        if free >= most or len(found) < looked_at:
            return found
        looked_at *= 2


def _delete_pods(observed: job_pods.JobPods) -> Iterator[commands.Delete]:
    for pod in observed.first_doomed(MOST_PODS):
        yield commands.Delete(
            kind=kinds.PODS,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=pod.metadata.uid,
        )


def _group_key(job: Job) -> str:
    return f"{job.metadata.namespace}/{pods.group_name(job)}"


def _group_commands(cache: controller_cache.ControllerCache, job: Job) -> commands.Stage:
    """Make the PodGroup, let it follow the spec, or remove one of an earlier version."""
    state = cache.state(kinds.POD_GROUPS, _group_key(job))
    group = cache.pod_group(_group_key(job))
    if state is None:
        return (pod_groups.create(cache, job),)
    if group is None or cache.is_going(group):
        return ()
    if manifests.version_of(group) < job.status.version:
        return _delete_group(cache, job)
    return pod_groups.adjust(cache, job, group)


def _delete_group(cache: controller_cache.ControllerCache, job: Job) -> commands.Stage:
    group = cache.pod_group(_group_key(job))
    if group is None or cache.is_going(group):
        return ()
    return (
        commands.Delete(
            kind=kinds.POD_GROUPS,
            namespace=group.metadata.namespace,
            name=group.metadata.name,
            uid=group.metadata.uid,
        ),
    )


def _controlled(cache: controller_cache.ControllerCache, job: Job) -> dict[str, str]:
    """What the status says once the claims and the plugins' objects are there."""
    others = debug_tool_pods.without(plugin_objects.controlled(job, cache.plugins))
    return others | volumes.controlled(job) | debug_tool_pods.controlled(job)


def _owned_objects(cache: controller_cache.ControllerCache, job: Job) -> Iterator[commands.Create]:
    yield from volumes.resources(job)
    yield from plugin_objects.creations(job, cache.plugins)
    yield from debug_tool_pods.creations(cache, job)


# What is told


def _tell(
    cache: controller_cache.ControllerCache, job: Job, observed: job_pods.JobPods, now: datetime
) -> commands.Stage:
    told: list[commands.Command] = list(
        event_history.due_tasks(
            cache.published,
            job,
            observed.unsettled(),
            cache.is_going,
            cache.unknown_pods(),
            observed.settle,
            now,
        )
    )
    message = event_history.due_phase(cache.published, job)
    if message is not None:
        trace = job.metadata.annotation(keys.TRACEPARENT) or ""
        # What is published last says that the rest was said: a kill in between loses nothing.
        type_: Literal["Normal", "Warning"] = "Warning" if message.after == "Failed" else "Normal"
        text = event_messages.of_phase(message)
        told.append(_about(job, type_, message.after, text, message.at, recurs=True))
        told.append(
            commands.Publish(
                job=job.metadata.key, message=message, at=message.at, traceparent=trace
            )
        )
    return tuple(told)


def _about(
    job: Job,
    type_: Literal["Normal", "Warning"],
    reason: str,
    message: str,
    at: datetime,
    *,
    recurs: bool = False,
) -> commands.RecordEvent:
    return commands.event_about(kinds.JOBS, job, type_, reason, message, at, recurs=recurs)


def _has_expired(cache: controller_cache.ControllerCache, job: Job, now: datetime) -> bool:
    """Its time is over, and whoever made it knows its end: else it would be made again."""
    at = expires_at(job)
    return at is not None and now >= at and not _is_awaited(cache, job)


def _is_awaited(cache: controller_cache.ControllerCache, job: Job) -> bool:
    if job.status.state.phase not in lifecycle.FINISHED:
        return False
    return child_jobs.is_awaited(cache, job) or job_dependencies.is_awaited(cache, job)


def _remove(job: Job) -> commands.Delete:
    return commands.Delete(
        kind=kinds.JOBS,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        propagation="Background",
    )
