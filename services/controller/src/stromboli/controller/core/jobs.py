"""A job's next step: from what is to what has to be done.

Everything is derived from objects, in this order:

1. A job that is unreadable, going or not ours is left alone.
2. If its phase has to change, the *status is written and nothing else*: the intent comes first.
3. Otherwise everything that the phase asks for is done at once, since all of it may be repeated:
   pods, PodGroup, what plugins add, counts, and events about what has not been told yet.

So a crash between any two commands, and a repetition of any of them, lead to the same end.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from stromboli.controller.core import (
    commands,
    history,
    lifecycle,
    manifest,
    plugin_objects,
    pod_groups,
    pods,
    policies,
    tasks,
    view,
)
from stromboli.shared import keys
from stromboli.shared.api import batch, core, kinds
from stromboli.shared.api.batch import Command, Job
from stromboli.shared.messages import batch as messages

MOST_PODS = 200
"""Pods made or removed in one step: building one takes about 30 µs, so a step stalls nobody; a
larger job takes its next step at once."""
_CLEARED = lifecycle.FINISHED | {"Aborted"}
"""Phases without the plugins' objects. They stay over a restart: names and keys stay true."""


def reconcile(picture: view.View, key: str, now: datetime) -> commands.Plan:
    """The job's next step. Empty when nothing is to do until something changes or is ``due``.

    Raises IllegalMoveError for a phase that no controller of this kind writes. O(pods).
    """
    plan = _next_step(picture, key, now)
    news = (tuple(it for it in stage if not picture.was_said(it)) for stage in plan)
    return tuple(stage for stage in news if stage)


def _next_step(picture: view.View, key: str, now: datetime) -> commands.Plan:
    job = picture.job(key)
    if job is None and picture.state(kinds.JOBS, key) is not None:
        return ()  # frozen: it cannot be read
    departed = history.due_departure(picture.published, key, job.metadata.uid if job else "", now)
    if job is None or not picture.is_ours(job):
        return (departed,)
    return (departed, *_step_of(picture, job, now))


def _step_of(picture: view.View, job: Job, now: datetime) -> commands.Plan:
    seen = tasks.look(picture, job)
    told = _tell(picture, job, seen.pods, now)
    if picture.is_going(job):
        return (told,)
    if _has_expired(job, now):
        return (told, (_remove(job),))
    orders = picture.orders(job.metadata.key)
    if orders and job.status.state.phase:
        return (told, *_obey(job, orders[0], seen, now))
    advance = _advance(picture, job, seen, now)
    # A phase that passes at once is told all the same, before the next one.
    return (told, *advance) if advance else _effects(picture, job, seen, told, now)


def due(picture: view.View, key: str) -> datetime | None:
    """When the job needs a look although nothing changed: its time to live."""
    job = picture.job(key)
    if job is None or not picture.is_ours(job) or picture.is_going(job):
        return None
    return expires_at(job)


def expires_at(job: Job) -> datetime | None:
    """When a finished job is to be removed, from what stands in its status."""
    ttl, state = job.spec.ttl_seconds_after_finished, job.status.state
    if ttl is None or state.phase not in lifecycle.FINISHED or state.last_transition_time is None:
        return None
    return state.last_transition_time + timedelta(seconds=ttl)


# Step 2: the phase


def _advance(picture: view.View, job: Job, seen: tasks.Look, now: datetime) -> commands.Plan:
    """The status write for a phase that has to change; for a new job, what comes with it."""
    phase = tasks.phase_of(job)
    if phase == "":
        return _accept(picture, job, seen.counts, now)
    group = picture.pod_group(_group_key(job))
    event: lifecycle.Event | None = policies.asked(picture, job, seen.pods, group)
    event = event or lifecycle.judge(tasks.facts(picture, job, seen))
    if event is None:
        return ()
    return ((_write(job, moved(job, event, seen.counts, now)),),)


def _accept(picture: view.View, job: Job, counts: tasks.Tally, now: datetime) -> commands.Plan:
    """A new job: its PodGroup and its plugins' objects, then its status.

    Phase Pending at version 0 is what a job without status is anyway, so nothing is lost by
    letting the PodGroup go first, and the scheduler sees it one write sooner.
    """
    status = moved(job, "Accepted", counts, now)
    if any(pods.obstacles(job, picture.plugins)):
        return ((_write(job, status),),)
    made = (*_group_commands(picture, job), *plugin_objects.creations(job, picture.plugins))
    status = msgspec.structs.replace(
        status, controlled_resources=plugin_objects.controlled(job, picture.plugins)
    )
    write: commands.Stage = (_write(job, status),)
    return (made, write) if made else (write,)


def moved(
    job: Job, event: lifecycle.Event, counts: tasks.Tally, now: datetime, message: str = ""
) -> batch.JobStatus:
    """The status after an event, with the counts of this moment. Raises IllegalMoveError."""
    move = lifecycle.move(tasks.phase_of(job), event)
    before = tasks.status_with(job.status, counts, tasks.min_available(job))
    entered = batch.JobCondition(status=move.to, last_transition_time=now)
    others = tuple(it for it in before.conditions if it.status != move.to)
    created = job.metadata.creation_timestamp
    lasted = "" if created is None else tasks.go_duration((now - created).total_seconds())
    return msgspec.structs.replace(
        before,
        state=batch.JobState(
            phase=move.to, reason=event, message=message, last_transition_time=now
        ),
        conditions=(*others, entered),
        version=before.version + move.new_version,
        retry_count=_counted(job, before.retry_count + move.retry),
        running_duration=lasted if move.to in lifecycle.FINISHED else "",
    )


def _counted(job: Job, retries: int) -> int:
    """A job aborted on its last try and resumed has no try left: it fails, and counts no more
    retries than it was allowed."""
    return min(retries, max(tasks.max_retry(job), job.status.retry_count))


def _write(job: Job, status: batch.JobStatus) -> commands.PatchJobStatus:
    return commands.PatchJobStatus(job=job, status=status)


def _obey(job: Job, order: Command, seen: tasks.Look, now: datetime) -> commands.Plan:
    """Carry out a user's command: recorded in the status, told, then deleted.

    The status names the command until its next change, and the job takes no other step before the
    command is deleted: so it is carried out once.
    """
    delete = commands.Delete(
        kind=kinds.COMMANDS,
        namespace=order.metadata.namespace,
        name=order.metadata.name,
        uid=order.metadata.uid,
    )
    mark = f"command {order.metadata.uid}"
    phase = tasks.phase_of(job)
    action = next((it for it in policies.WHOLE_JOB if it == order.action), None)
    is_meant = order.target is None or order.target.uid in ("", job.metadata.uid)
    is_done = job.status.state.message == mark
    if is_done or order.action == policies.SYNC:
        taken = messages.CommandTaken(
            job=job.metadata.key,
            uid=job.metadata.uid,
            command=order.metadata.name,
            action=order.action,
            at=job.status.state.last_transition_time or now,
        )
        said = _about(job, "Normal", "CommandIssued", f"{order.action} was asked for", now)
        told = commands.Publish(job=job.metadata.key, message=taken, at=taken.at)
        return ((told, said), (delete,))
    if action is not None and is_meant and lifecycle.accepts(phase, action):
        return ((_write(job, moved(job, action, seen.counts, now, mark)),),)
    why = _refusal(job, order, is_known=action is not None, is_meant=is_meant)
    return ((_about(job, "Warning", "CommandRefused", why, now),), (delete,))


def _refusal(job: Job, order: Command, *, is_known: bool, is_meant: bool) -> str:
    if not is_meant:
        return f"{order.action} was meant for an earlier job of this name"
    if not is_known:
        known = ", ".join((policies.SYNC, *policies.WHOLE_JOB))
        return f"{order.action!r} is not carried out; known are {known}"
    return f"{order.action} does nothing in phase {job.status.state.phase or 'Pending'}"


# Step 3: what the phase asks for


def _effects(
    picture: view.View, job: Job, seen: tasks.Look, told: commands.Stage, now: datetime
) -> commands.Plan:
    stage: list[commands.Command] = []
    phase, controlled = job.status.state.phase, job.status.controlled_resources
    if phase in lifecycle.STOPPING:
        stage += _delete_pods(seen.doomed)
        stage += _delete_group(picture, job)
        if phase in _CLEARED:
            stage += plugin_objects.removals(job, picture.plugins)
            controlled = plugin_objects.others_controlled(job)
    else:
        obstacles = list(pods.obstacles(job, picture.plugins))
        stage += [_about(job, "Warning", it.reason, it.message, now) for it in obstacles]
        stage += [
            _about(job, "Warning", it.reason, it.message, now)
            for it in pods.warnings(job, picture.plugins)
        ]
        stage += [
            _about(job, "Warning", "NotCarriedOut", f"not carried out yet: {line}", now)
            for line in policies.left_out(job)
        ]
        if not obstacles:
            stage += _group_commands(picture, job)
            controlled = plugin_objects.controlled(job, picture.plugins)
            if controlled != job.status.controlled_resources:
                stage += plugin_objects.creations(job, picture.plugins)
            stage += _pod_commands(picture, job, seen, now)
    stage += told
    counted = tasks.status_with(job.status, seen.counts, tasks.min_available(job))
    final = msgspec.structs.replace(counted, controlled_resources=controlled)
    if final == job.status:
        return (tuple(stage),) if stage else ()
    if final.controlled_resources != job.status.controlled_resources:
        # What the status says is there or gone has to be so first.
        return (tuple(stage), (_write(job, final),))
    return ((*stage, _write(job, final)),)


def _pod_commands(
    picture: view.View, job: Job, seen: tasks.Look, now: datetime
) -> Iterator[commands.Command]:
    """Make what is missing, remove what is too much: once the PodGroup has entered its queue."""
    group = picture.pod_group(_group_key(job))
    if group is None or picture.is_going(group) or not picture.is_enqueued(group):
        return
    if manifest.version_of(group) < job.status.version:
        return
    made = 0
    there = {pod.metadata.name for pod in seen.pods}
    for member in tasks.members(job):
        if member.name in there:
            continue
        found = tasks.name_state(picture, job, member.name)
        if found is None and made < MOST_PODS:
            made += 1
            try:
                yield pods.create(job, member, picture.plugins)
            except plugin_objects.FailedError as error:
                yield _about(job, "Warning", "PluginError", str(error), now)
        elif isinstance(found, core.Pod) and not picture.is_going(found):
            why = f"pod {member.name} cannot be made: a pod of this name belongs to somebody else"
            yield _about(job, "Warning", "FailedCreate", why, now)
    yield from _delete_pods(seen.doomed)


def _delete_pods(doomed: list[core.Pod]) -> Iterator[commands.Delete]:
    # The highest index goes first: a task shrinks from its end.
    ordered = sorted(
        doomed, key=lambda pod: -manifest.number(pod.metadata.annotation(keys.TASK_INDEX))
    )
    for pod in ordered[:MOST_PODS]:
        yield commands.Delete(
            kind=kinds.PODS,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=pod.metadata.uid,
        )


def _group_key(job: Job) -> str:
    return f"{job.metadata.namespace}/{pods.group_name(job)}"


def _group_commands(picture: view.View, job: Job) -> commands.Stage:
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


def _delete_group(picture: view.View, job: Job) -> commands.Stage:
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


# What is told


def _tell(picture: view.View, job: Job, mine: list[core.Pod], now: datetime) -> commands.Stage:
    told: list[commands.Command] = list(
        history.due_tasks(picture.published, job, mine, picture.unknown_pods(), now)
    )
    message = history.due_phase(picture.published, job)
    if message is not None:
        trace = job.metadata.annotation(keys.TRACEPARENT) or ""
        # What is published last says that the rest was said: a kill in between loses nothing.
        told.append(_about(job, "Normal", message.after, _phase_text(message), message.at))
        told.append(
            commands.Publish(
                job=job.metadata.key, message=message, at=message.at, traceparent=trace
            )
        )
    return tuple(told)


def _phase_text(message: messages.JobPhaseChanged) -> str:
    counts = msgspec.structs.asdict(message.counts)
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    text = f"from {message.before or 'nothing'} to {message.after}"
    text += f" because {message.reason}" if message.reason else ""
    text += f", try {message.retry_count + 1}" if message.retry_count else ""
    return f"{text}: {shown or 'no'} pods"


def _about(
    job: Job, type_: Literal["Normal", "Warning"], reason: str, message: str, at: datetime
) -> commands.RecordEvent:
    return commands.event_about(kinds.JOBS, job, type_, reason, message, at)


def _has_expired(job: Job, now: datetime) -> bool:
    at = expires_at(job)
    return at is not None and now >= at


def _remove(job: Job) -> commands.Delete:
    return commands.Delete(
        kind=kinds.JOBS,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        propagation="Background",
    )
