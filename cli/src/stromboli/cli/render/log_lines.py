"""The logs of several containers as one stream of lines with prefixes and colours. Pure."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from stromboli.cli.render import pod_status
from stromboli.shared import decoding, keys
from stromboli.shared.api import batch, core
from stromboli.shared.api.views.task_history import TaskAttempt

COLOURS = (
    "cyan",
    "green",
    "yellow",
    "magenta",
    "blue",
    "bright_red",
    "bright_cyan",
    "bright_green",
)
"""Colours of consecutive pods; they repeat if there are more pods."""
_STARTED = ("Running", "Succeeded", "Failed")
NEVER_RAN = ("StartError", "ContainerCannotRun", "ContainerStatusUnknown")
"""Reasons of a termination before the command of the container ran."""


class Source(msgspec.Struct, frozen=True):
    """A container whose log is read. Each restart is a new source."""

    pod: str
    uid: str
    container: str
    label: str
    colour: str
    restarts: int = 0
    is_over: bool = False


def log_sources(pods: Iterable[pod_status.Pod], job: str, container: str | None) -> list[Source]:
    """The containers of pods that have started, by task and index."""
    ordered = sorted(pods, key=_order)
    several = container is None and any(len(pod.spec.containers) > 1 for pod in ordered)
    sources = []
    for place, pod in enumerate(ordered):
        if pod.status.phase not in _STARTED:
            continue
        names = [one.name for one in pod.spec.containers]
        for name in names if container is None else [container]:
            state = next((one for one in pod.status.container_statuses if one.name == name), None)
            sources.append(
                Source(
                    pod=pod.metadata.name,
                    uid=pod.metadata.uid,
                    container=name,
                    label=short_name(pod, job) + (f"/{name}" if several else ""),
                    colour=COLOURS[place % len(COLOURS)],
                    restarts=state.restart_count if state else 0,
                    is_over=pod.status.phase != "Running",
                )
            )
    return sources


def attempt_sources(
    job: batch.Job,
    attempts: Iterable[TaskAttempt],
    attempt: int,
    task: str | None,
    indexes: Container[int] | None,
    container: str | None,
) -> list[Source]:
    """The containers of one attempt by task and index, also of deleted pods."""
    chosen = [each for each in attempts if each.attempt == attempt]
    names = {each.name: _container_names(each) for each in job.spec.tasks}
    return _sources_of(job.metadata.name, names, chosen, task, indexes, container)


def last_attempt_sources(
    job: batch.Job,
    attempts: Iterable[TaskAttempt],
    task: str | None,
    indexes: Container[int] | None,
    container: str | None,
) -> list[Source]:
    """The containers of the last attempt of each task and index, also of deleted pods."""
    names = {each.name: _container_names(each) for each in job.spec.tasks}
    return _sources_of(job.metadata.name, names, _last(attempts), task, indexes, container)


def deleted_job_sources(
    job: str,
    attempts: Sequence[TaskAttempt],
    attempt: int | None,
    task: str | None,
    indexes: Container[int] | None,
    container: str | None,
) -> list[Source]:
    """One attempt of a deleted job, or the last one of each task and index. The names of its
    containers are not known: the empty name selects the only container of a pod."""
    chosen = (
        _last(attempts) if attempt is None else [it for it in attempts if it.attempt == attempt]
    )
    return _sources_of(job, {}, chosen, task, indexes, container or "")


def _last(attempts: Iterable[TaskAttempt]) -> list[TaskAttempt]:
    """The last attempt of each task and index."""
    last: dict[tuple[str, int], TaskAttempt] = {}
    for each in attempts:
        key = each.task, each.index
        if key not in last or each.attempt >= last[key].attempt:
            last[key] = each
    return list(last.values())


def _sources_of(
    job: str,
    names: Mapping[str, tuple[str, ...]],
    attempts: Iterable[TaskAttempt],
    task: str | None,
    indexes: Container[int] | None,
    container: str | None,
) -> list[Source]:
    """The sources of these attempts, sorted. ``names``: task -> containers."""
    chosen = sorted(
        (
            each
            for each in attempts
            if task in (None, each.task) and (indexes is None or each.index in indexes)
        ),
        key=lambda each: (each.task, each.index, each.retry_count),
    )
    several = container is None and any(
        len(container_names) > 1 for container_names in names.values()
    )
    return [
        Source(
            pod=each.pod,
            uid=each.pod_uid,
            container=name,
            label=each.pod.removeprefix(f"{job}-") + (f"/{name}" if several else ""),
            colour=COLOURS[place % len(COLOURS)],
            is_over=True,
        )
        for place, each in enumerate(chosen)
        for name in (names.get(each.task, ()) if container is None else (container,))
    ]


def _container_names(task: batch.TaskSpec) -> tuple[str, ...]:
    """The containers of a task's pods; none of a template that cannot be read."""
    try:
        spec = decoding.from_json(task.template.spec, core.PodSpec)
    except msgspec.DecodeError:
        return ()
    return tuple(each.name for each in spec.containers)


def not_started(pods: Iterable[pod_status.Pod], job: str, container: str | None) -> dict[str, str]:
    """Label of a container that has never started -> why."""
    reasons = {}
    for pod in sorted(pods, key=_order):
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            ended = status.state.terminated
            if container not in (None, status.name) or status.restart_count:
                continue
            if ended is not None and ended.reason in NEVER_RAN:
                reasons[f"{short_name(pod, job)}/{status.name}"] = _reason(ended)
            elif status.state.waiting is not None and pod.status.phase in _STARTED:
                reasons[f"{short_name(pod, job)}/{status.name}"] = _reason(status.state.waiting)
        if pod.status.phase == "Failed" and not pod.status.container_statuses:
            reasons[short_name(pod, job)] = _reason(pod.status)
    return reasons


def _reason(state: pod_status.Terminated | pod_status.Waiting | pod_status.Status) -> str:
    return ": ".join(filter(None, (state.reason, state.message.strip()))) or "no reason reported"


def select_pods(
    pods: Iterable[pod_status.Pod], task: str | None, indexes: Container[int] | None
) -> list[pod_status.Pod]:
    """The pods of this task and these indexes; None selects all."""
    return [
        pod
        for pod in pods
        if task in (None, task_of(pod)) and (indexes is None or index_of(pod) in indexes)
    ]


def unknown_task(job: batch.Job, task: str | None) -> str:
    """The error about a task that the job does not have; empty if it has the task."""
    names = [each.name for each in job.spec.tasks]
    if task is None or task in names:
        return ""
    return f"task {task!r} not found; its tasks are {', '.join(names)}"


def short_name(pod: pod_status.Pod, job: str) -> str:
    """A pod without its job's name: ``worker-3``."""
    return pod.metadata.name.removeprefix(f"{job}-")


def line_prefixes(sources: Sequence[Source]) -> dict[str, str]:
    """Label -> the prefix of its lines, all of the same width."""
    width = max((len(source.label) for source in sources), default=0)
    return {source.label: f"{source.label.ljust(width)} | " for source in sources}


def task_of(pod: pod_status.Pod) -> str:
    """The name of the pod's task."""
    return pod.metadata.annotation(keys.TASK_SPEC) or ""


def index_of(pod: pod_status.Pod) -> int:
    """The pod's number in its task, -1 if it has none."""
    own = pod.metadata.label(keys.TASK_INDEX) or pod.metadata.annotation(keys.TASK_INDEX) or ""
    match = re.search(r"(\d+)$", own or pod.metadata.name)
    return int(match[1]) if match else -1


def _order(pod: pod_status.Pod) -> tuple[str, int, str]:
    return task_of(pod), index_of(pod), pod.metadata.name
