"""A job's next step: from what is to what has to be done.

Everything is derived from objects, in this order:

1. A job that is unreadable, going or not ours is left alone. One of which more was told than the
   picture has is read anew first.
2. If its phase has to change, the *status is written and nothing else*: the intent comes first.
3. Otherwise everything that the phase asks for is done at once, since all of it may be repeated:
   pods, PodGroup, what plugins add, counts, and events about what has not been told yet.

So a crash between any two commands, and a repetition of any of them, lead to the same end.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

import msgspec

from stromboli.controller.core import commands, lifecycle, manifest, pending_reason, restarts
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
from stromboli.controller.core.store import cache, event_history
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


def reconcile(picture: cache.Cache, key: str, now: datetime) -> commands.Plan:
    """The job's next step. Empty when nothing is to do until something changes or is ``due``.

    Raises IllegalMoveError for a phase that no controller of this kind writes. Costs what changed
    since the last step; one walk over all pods where the job itself changed (``job_pods``).
    """
    job = picture.job(key)
    if job is None and picture.state(kinds.JOBS, key) is not None:
        return ()  # frozen: it cannot be read
    behind = catch_up.catching_up(picture, key)
    if behind:
        return (behind,)
    departed = event_history.due_departure(
        picture.published, key, job.metadata.uid if job else "", now
    )
    if job is None:
        return (departed,)
    if not picture.is_ours(job):
        return (departed, tuple(_left_alone(picture, job, now)))
    return (departed, *_step_of(picture, job, now))


def _left_alone(picture: cache.Cache, job: Job, now: datetime) -> Iterator[commands.RecordEvent]:
    """What a job is told that names no scheduler: it was written while another system acted, and
    admission let it pass. As long as that acts it may be the other's, and is never ours: how far
    the other got with it is not known here."""
    is_over = job.status.state.phase in lifecycle.FINISHED or picture.is_going(job)
    if job.spec.scheduler_name or picture.sync.claimed or is_over:
        return
    why = (
        "it names no scheduler, and no other system acts that could be meant, so nobody runs it: "
        f"delete it and submit it again; without a name it gets {picture.usual_scheduler!r} now"
    )
    yield commands.event_about(kinds.JOBS, job, "Warning", "NoScheduler", why, now)


def _step_of(picture: cache.Cache, job: Job, now: datetime) -> commands.Plan:
    seen = job_pods.look(picture, job)
    told = _tell(picture, job, seen, now)
    if picture.is_going(job):
        return (told,)
    if _has_expired(picture, job, now):
        return (told, (_remove(job),))
    wishes = picture.orders(cache.ReconcileKey("job", job.metadata.key))
    if wishes and job.status.state.phase:
        return (told, *job_commands.obey(picture, job, wishes[0], seen.counts, now))
    advance = _advance(picture, job, seen, now)
    if not advance:
        return _effects(picture, job, seen, told, now)
    # A phase that passes at once is told all the same, before the next one. That a pod is gone is
    # told once a policy has taken it up: a kill in between must not lose it. One that this phase
    # has ended concerns no policy, and what ended it is not known any more in the next phase.
    return (tuple(it for it in told if not event_history.concerns_policies(job, it)), *advance)


def due(picture: cache.Cache, key: str, now: datetime) -> datetime | None:
    """When the job needs a look although nothing changed: for its time to live or to run, for a
    policy that waits, or for the end of a back-off."""
    job = picture.job(key)
    if job is None or not picture.is_ours(job) or picture.is_going(job):
        return None
    # What waits for its maker, or for another job, is looked at when that changes.
    times = [] if _is_awaited(picture, job) else [expires_at(job)]
    if job.status.state.phase in _RULED:
        times += [job.status.deadline_at, job.status.retry_at]
        pods = picture.pods_of(job.metadata.uid) if policies.watches_pending(job) else ()
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
    picture: cache.Cache, job: Job, seen: job_pods.JobPods, now: datetime
) -> commands.Plan:
    """The status write for a phase that has to change; for a new job, what comes with it."""
    phase = tasks.phase_of(job)
    if phase == "":
        return _accept(picture, job, seen.counts, now)
    group = picture.pod_group(_group_key(job))
    ruling = policies.Ruling(None, ())
    if phase in _RULED:
        ruling = policies.rule(picture, job, seen, group, now)
        if ruling.order is not None:
            asked = ruling.order.action
            status = status_transitions.after(job, asked, seen.counts, now, order=ruling.order)
            why = f"Start to execute action {asked}: {ruling.order.why}"
            acted = _about(job, "Normal", "ExecuteAction", why, now, recurs=True)
            # Said with the write, so that a kill in between loses neither.
            *first, write = _change(picture, job, status, now)
            return (*first, (acted, *write))
        if policy_events.is_overdue(job, now):
            why = f"activeDeadlineSeconds {job.spec.active_deadline_seconds} are over"
            status = status_transitions.after(job, "DeadlineExceeded", seen.counts, now, why)
            return _change(picture, job, status, now)
    is_possible = phase != "Pending" or not any(_obstacles(picture, job))
    found = lifecycle_inputs.of(picture, job, seen, now)
    event = lifecycle.judge(found) if is_possible else None
    if event is not None and not (event == "Failed" and ruling.delayed):
        why = event_messages.of_event(job, event, found, seen.pods)
        return _change(
            picture, job, status_transitions.after(job, event, seen.counts, now, why), now
        )
    if phase in _RULED and ruling.delayed != job.status.delayed:
        counted = tasks.status_with(job.status, seen.counts, tasks.min_available(job))
        return ((_write(job, msgspec.structs.replace(counted, delayed=ruling.delayed)),),)
    return ()


def _change(
    picture: cache.Cache, job: Job, status: batch.JobStatus, now: datetime
) -> commands.Plan:
    """The status write of a transition. Pods that it ends count as terminating in it, and what a
    CronJob keeps no longer goes first."""
    first = tuple(cron_history.displaced(picture, job, status.state.phase, now))
    write: commands.Stage = (_write(job, job_pods.ending(picture, job, status)),)
    return (first, write) if first else (write,)


def _accept(picture: cache.Cache, job: Job, counts: tasks.Tally, now: datetime) -> commands.Plan:
    """A new job: its PodGroup and its plugins' objects, then its status.

    Phase Pending at version 0 is what a job without status is anyway, so nothing is lost by
    letting the PodGroup go first, and the scheduler sees it one write sooner.
    """
    status = status_transitions.after(job, "Accepted", counts, now)
    if any(_obstacles(picture, job)):
        return ((_write(job, status),),)
    made = (*_group_commands(picture, job), *_owned_objects(picture, job))
    status = msgspec.structs.replace(status, controlled_resources=_controlled(picture, job))
    write: commands.Stage = (_write(job, status),)
    return (made, write) if made else (write,)


def _obstacles(picture: cache.Cache, job: Job) -> Iterator[pods.Obstacle]:
    """What keeps the job Pending."""
    yield from pods.obstacles(job, picture.plugins)
    yield from job_dependencies.obstacles(picture, job)


def _write(job: Job, status: batch.JobStatus) -> commands.PatchJobStatus:
    return commands.PatchJobStatus(job=job, status=status)


# Step 3: what the phase asks for


def _effects(
    picture: cache.Cache, job: Job, seen: job_pods.JobPods, told: commands.Stage, now: datetime
) -> commands.Plan:
    stage: list[commands.Command] = []
    phase, controlled = job.status.state.phase, job.status.controlled_resources
    why = ""
    if phase in lifecycle.STOPPING:
        stage += _delete_pods(seen)
        if not restarts.is_partial(job):
            stage += _delete_group(picture, job)
            stage += debug_tool_pods.stopped(picture, job)
        if phase in _CLEARED:
            stage += plugin_objects.removals(job, picture.plugins)
            stage += debug_tool_pods.removals(job, ())
            controlled = debug_tool_pods.without(plugin_objects.others_controlled(job))
    else:
        obstacles = list(_obstacles(picture, job))
        stage += [_about(job, it.type, it.reason, it.message, now) for it in obstacles]
        why = pending_reason.reasons((it.reason, it.message) for it in obstacles)
        stage += [
            _about(job, "Warning", it.reason, it.message, now)
            for it in pods.warnings(job, picture.plugins)
        ]
        stage += [
            _about(job, "Warning", "NotCarriedOut", f"not carried out: {line}", now)
            for line in policies.left_out(job)
        ]
        if not obstacles:
            stage += _group_commands(picture, job)
            stage += volumes.written_back(job)
            controlled = _controlled(picture, job)
            if controlled != job.status.controlled_resources:
                stage += _owned_objects(picture, job)
            of_pods = list(_pod_commands(picture, job, seen, now))
            stage += of_pods
            said = [it for it in of_pods if isinstance(it, commands.RecordEvent)]
            why = pending_reason.reasons((it.reason, it.message) for it in said)
            stage += debug_tool_pods.carried_out(picture, job, lambda: seen.pods)
    if why:
        stage += pending_reason.noted(kinds.JOBS, job, why)
    stage += told
    if phase not in lifecycle.STOPPING and not any(task.replicas for task in job.spec.tasks):
        stage.append(_about(job, "Normal", "NoPods", _NO_PODS, now))
    # That nothing holds it up is known once all of this was done, as nobody may refuse it.
    cleared = () if why else pending_reason.noted(kinds.JOBS, job, "")
    counted = tasks.status_with(job.status, seen.counts, tasks.min_available(job))
    final = msgspec.structs.replace(counted, controlled_resources=controlled)
    stages: commands.Plan = (tuple(stage),)
    if final.controlled_resources != job.status.controlled_resources:
        # What the status says is there or gone has to be so first.
        stages = (*stages, (_write(job, final),))
    elif final != job.status:
        stages = ((*stage, _write(job, final)),)
    return tuple(it for it in (*stages, cleared) if it)


def _pod_commands(
    picture: cache.Cache, job: Job, seen: job_pods.JobPods, now: datetime
) -> Iterator[commands.Command]:
    """Make what is missing, remove what is too much: once the PodGroup has entered its queue."""
    group = picture.pod_group(_group_key(job))
    if group is None or picture.is_going(group) or not picture.is_enqueued(group):
        return
    if manifest.version_of(group) < job.status.version:
        return
    most = min(MOST_PODS, tasks.room(picture, job, lambda: seen.pods))
    started = pod_groups.started(picture, job, group)
    for task in (it for it in tasks.specs(job) if it.name in started):
        for member, found in _missing(picture, job, seen, task.name, most):
            if found is None and most > 0:
                most -= 1
                attempt = picture.published.attempts(job, task.name, member.index) + 1
                try:
                    yield pods.create(job, member, picture.plugins, attempt)
                except plugin_objects.FailedError as error:
                    yield _about(job, "Warning", "PluginError", str(error), now)
            elif isinstance(found, core.Pod) and not picture.is_going(found):
                name = member.name
                why = f"pod {name} cannot be made: a pod of this name belongs to somebody else"
                yield _about(job, "Warning", "FailedCreate", why, now)
    yield from _delete_pods(seen)


def _missing(
    picture: cache.Cache, job: Job, seen: job_pods.JobPods, task: str, most: int
) -> list[tuple[tasks.Member, snapshot.State]]:
    """The first missing pods of a task with what stands under their names: as many as have so many
    free names among them, if there are."""
    looked_at = max(most, 1)
    while True:
        found = [
            (member, tasks.name_state(picture, job, member.name))
            for member in seen.missing(task, looked_at)
        ]
        free = sum(state is None for _, state in found)
        if free >= most or len(found) < looked_at:
            return found
        looked_at *= 2


def _delete_pods(seen: job_pods.JobPods) -> Iterator[commands.Delete]:
    for pod in seen.first_doomed(MOST_PODS):
        yield commands.Delete(
            kind=kinds.PODS,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=pod.metadata.uid,
        )


def _group_key(job: Job) -> str:
    return f"{job.metadata.namespace}/{pods.group_name(job)}"


def _group_commands(picture: cache.Cache, job: Job) -> commands.Stage:
    """Make the PodGroup, let it follow the spec, or remove one of an earlier version."""
    state = picture.state(kinds.POD_GROUPS, _group_key(job))
    group = picture.pod_group(_group_key(job))
    if state is None:
        return (pod_groups.create(picture, job),)
    if group is None or picture.is_going(group):
        return ()
    if manifest.version_of(group) < job.status.version:
        return _delete_group(picture, job)
    return pod_groups.adjust(picture, job, group)


def _delete_group(picture: cache.Cache, job: Job) -> commands.Stage:
    group = picture.pod_group(_group_key(job))
    if group is None or picture.is_going(group):
        return ()
    return (
        commands.Delete(
            kind=kinds.POD_GROUPS,
            namespace=group.metadata.namespace,
            name=group.metadata.name,
            uid=group.metadata.uid,
        ),
    )


def _controlled(picture: cache.Cache, job: Job) -> dict[str, str]:
    """What the status says once the claims and the plugins' objects are there."""
    others = debug_tool_pods.without(plugin_objects.controlled(job, picture.plugins))
    return others | volumes.controlled(job) | debug_tool_pods.controlled(job)


def _owned_objects(picture: cache.Cache, job: Job) -> Iterator[commands.Create]:
    yield from volumes.resources(job)
    yield from plugin_objects.creations(job, picture.plugins)
    yield from debug_tool_pods.creations(picture, job)


# What is told


def _tell(picture: cache.Cache, job: Job, seen: job_pods.JobPods, now: datetime) -> commands.Stage:
    told: list[commands.Command] = list(
        event_history.due_tasks(
            picture.published,
            job,
            seen.unsettled(),
            picture.is_going,
            picture.unknown_pods(),
            seen.settle,
            now,
        )
    )
    message = event_history.due_phase(picture.published, job)
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


def _has_expired(picture: cache.Cache, job: Job, now: datetime) -> bool:
    """Its time is over, and whoever made it knows its end: else it would be made again."""
    at = expires_at(job)
    return at is not None and now >= at and not _is_awaited(picture, job)


def _is_awaited(picture: cache.Cache, job: Job) -> bool:
    if job.status.state.phase not in lifecycle.FINISHED:
        return False
    return child_jobs.is_awaited(picture, job) or job_dependencies.is_awaited(picture, job)


def _remove(job: Job) -> commands.Delete:
    return commands.Delete(
        kind=kinds.JOBS,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        propagation="Background",
    )
