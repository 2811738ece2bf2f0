"""Lifecycle policies: what a job does when something happens to its pods.

What happened is read from the pods themselves and from what was published about them, never from
the passing of a message, so a policy is neither missed over a crash nor carried out twice: a whole
job's action begins a new version of the job, and only pods of the present version count.
Source: spec/jobs.md 3.1 and 3.2.
"""

from collections.abc import Iterator
from typing import get_args

import msgspec

from stromboli.controller.core import history, lifecycle, manifest, tasks, view
from stromboli.shared.api import core, scheduling
from stromboli.shared.api.batch import Job, LifecyclePolicy

WHOLE_JOB: tuple[lifecycle.Action, ...] = get_args(lifecycle.Action)
SYNC = "SyncJob"
"""The action that asks for nothing but a look."""
EVENTS = frozenset({"PodFailed", "PodEvicted", "TaskCompleted", "TaskFailed", "Unknown"})
DEFAULT_TASK_RETRY = 3


class Happening(msgspec.Struct, frozen=True):
    """Something that a policy may name. ``task`` is empty for the job as a whole."""

    event: str
    task: str = ""
    exit_code: int | None = None


def asked(
    picture: view.View, job: Job, pods: list[core.Pod], group: scheduling.PodGroup | None
) -> lifecycle.Action | None:
    """The action that the job's policies ask for now, in the order of the specification."""
    of_task = {task.name: task.policies for task in tasks.specs(job)}
    if not job.spec.policies and not any(of_task.values()):
        return None
    for happening in happenings(picture, job, pods, group):
        for policy in (*of_task.get(happening.task, ()), *job.spec.policies):
            if _is_carried_out(policy) and _matches(policy, happening):
                found = next((it for it in WHOLE_JOB if it == policy.action), None)
                if found is None or lifecycle.accepts(tasks.phase_of(job), found):
                    return found
                break
    return None


def happenings(
    picture: view.View, job: Job, pods: list[core.Pod], group: scheduling.PodGroup | None
) -> Iterator[Happening]:
    """What stands against this version of the job, pods by name first, then tasks."""
    wanted = {member.name: member for member in tasks.members(job)}
    present = [
        pod
        for pod in pods
        if manifest.version_of(pod) == job.status.version and pod.metadata.name in wanted
    ]
    for pod in present:
        name = wanted[pod.metadata.name].task.name
        if picture.is_going(pod):
            if not tasks.has_finished(pod):
                yield Happening("PodEvicted", name)
        elif pod.status.phase == "Failed":
            yield Happening("PodFailed", name, exit_code(pod))
    for told in _vanished(picture, job):
        if told.pod in wanted:
            yield Happening("PodEvicted", told.task)
    for task in tasks.specs(job):
        mine = [pod for pod in present if wanted[pod.metadata.name].task.name == task.name]
        if 0 < task.replicas <= sum(pod.status.phase == "Succeeded" for pod in mine):
            yield Happening("TaskCompleted", task.name)
        limit = task.max_retry or DEFAULT_TASK_RETRY
        restarts = sum(_restarts(pod) for pod in mine if not picture.is_going(pod))
        if 0 <= limit <= restarts:
            yield Happening("TaskFailed", task.name)
    if group is not None and group.status.phase == "Unknown":
        yield Happening("Unknown")


def left_out(job: Job) -> Iterator[str]:
    """What the job asks for and we do not carry out, a line each, for a Warning on the job."""
    for policy in job.spec.policies:
        if not _is_carried_out(policy):
            yield _shown(policy)
    for task in tasks.specs(job):
        for policy in task.policies:
            if not _is_carried_out(policy):
                yield f"task {task.name}: {_shown(policy)}"
        if task.depends_on is not None and task.depends_on.name:
            names = ", ".join(task.depends_on.name)
            yield f"task {task.name}: dependsOn {names} (it starts together with the others)"


def exit_code(pod: core.Pod) -> int | None:
    """How the pod's first container ended, if it did."""
    for status in pod.status.container_statuses[:1]:
        if status.state.terminated is not None:
            return status.state.terminated.exit_code
    return None


def _vanished(picture: view.View, job: Job) -> Iterator[history.Task]:
    """Pods of this run that were alive when we last spoke of them and are there no more."""
    told = picture.published.jobs.get(job.metadata.key)
    if told is None or told.uid != job.metadata.uid:
        return
    alive = {pod.metadata.uid for pod in picture.pods_of(job.metadata.uid)}
    unreadable = picture.unknown_pods()
    for uid, task in sorted(told.tasks.items()):
        is_this_run = task.retry_count == job.status.retry_count
        is_gone = uid not in alive and f"{job.metadata.namespace}/{task.pod}" not in unreadable
        if is_gone and is_this_run and task.state not in history.OVER:
            yield task


def _restarts(pod: core.Pod) -> int:
    if pod.status.phase not in ("Running", "Pending", ""):
        return 0
    return sum(status.restart_count for status in pod.status.container_statuses)


def _is_carried_out(policy: LifecyclePolicy) -> bool:
    if policy.timeout not in (None, "", "0s", "0"):
        return False
    if policy.action != SYNC and policy.action not in WHOLE_JOB:
        return False
    named = _events(policy)
    return policy.exit_code is not None or bool(named & (EVENTS | {"*"}))


def _matches(policy: LifecyclePolicy, happening: Happening) -> bool:
    named = _events(policy)
    if happening.event in named or "*" in named:
        return True
    return policy.exit_code is not None and policy.exit_code == happening.exit_code


def _events(policy: LifecyclePolicy) -> set[str]:
    return {policy.event, *policy.events} - {""}


def _shown(policy: LifecyclePolicy) -> str:
    cause = ", ".join(sorted(_events(policy)))
    if policy.exit_code is not None:
        cause = f"exit code {policy.exit_code}"
    wait = f" after {policy.timeout}" if policy.timeout else ""
    return f"policy {policy.action} on {cause}{wait}"
