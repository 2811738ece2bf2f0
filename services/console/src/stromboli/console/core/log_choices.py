"""The logs of a job: one for each attempt, also of pods that were deleted. Pure."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stromboli.client import job_logs
from stromboli.shared import keys
from stromboli.shared.api import core
from stromboli.shared.api.views.task_history import TaskAttempt

MOST_CHOICES = 500
FOLLOWED = ("Pending", "Running", "Unknown")
"""Phases of pods whose output may grow."""


class LogChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with a log. ``containers`` is empty for a deleted pod; ``grows``: it may still write
    output."""

    pod: str
    uid: str
    label: str
    containers: tuple[str, ...] = ()
    grows: bool = False


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The log that a page shows. ``container`` is empty where the server selects the only one."""

    choice: LogChoice
    container: str


def choices(attempts: Sequence[TaskAttempt], pods: Iterable[core.Pod]) -> list[LogChoice]:
    """The logs of a job by task and index, the last attempt of each first, then the pods that have
    no attempt in the history yet."""
    present = {pod.metadata.uid: pod for pod in pods}
    log_choices = [
        _choice(f"{it.task}[{it.index}]", it.attempt, it.state, it.pod, it.pod_uid, present)
        for it in sorted(attempts, key=lambda it: (it.task, it.index, -it.attempt))
        if it.node or it.pod_uid in present
    ]
    known = {it.uid for it in log_choices}
    log_choices += [
        _choice(
            f"{pod.metadata.annotation(keys.TASK_SPEC) or ''}[{job_logs.index_of(pod)}]",
            0,
            pod.status.phase or "Pending",
            pod.metadata.name,
            uid,
            present,
        )
        for uid, pod in sorted(present.items(), key=lambda pair: pair[1].metadata.name)
        if uid not in known
    ]
    return log_choices[:MOST_CHOICES]


def chosen(log_choices: Sequence[LogChoice], query: Mapping[str, str]) -> Chosen | None:
    """The log that a URL selects: by the uid of a pod, or its name; else the first one."""
    uid, pod = query.get("uid", ""), query.get("pod", "")
    wanted = [it for it in log_choices if (it.uid == uid if uid else not pod or it.pod == pod)]
    if not wanted:
        return None
    one = wanted[0]
    container = query.get("container", "")
    if one.containers and container not in one.containers:
        container = one.containers[0]
    return Chosen(choice=one, container=container)


def _choice(
    task: str, attempt: int, state: str, pod: str, uid: str, present: Mapping[str, core.Pod]
) -> LogChoice:
    there = present.get(uid)
    counted = f", attempt {attempt}" if attempt else ""
    gone = "" if there is not None else ", pod deleted"
    return LogChoice(
        pod=pod,
        uid=uid,
        label=f"{task}{counted}: {state}{gone}",
        containers=() if there is None else tuple(it.name for it in there.spec.containers),
        grows=there is not None and there.status.phase in FOLLOWED,
    )
