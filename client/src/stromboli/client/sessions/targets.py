"""Selects the container of a job in which a session is opened. Pure."""

from collections.abc import Collection, Iterable

import msgspec

from stromboli.client.errors import NoContainerError
from stromboli.shared import keys
from stromboli.shared.api import batch, core

RUNNING = "Running"


class Target(msgspec.Struct, frozen=True):
    """A container of a running pod."""

    namespace: str
    pod: str
    container: str


def choose(
    job: batch.Job,
    pods: Iterable[core.Pod],
    *,
    task: str = "",
    indexes: Collection[int] | None = None,
    container: str = "",
    any_container: bool = False,
) -> Target:
    """A container of the first running pod by task and index, among those of ``task`` and
    ``indexes``. Raises NoContainerError with the reason if there is none, or if the pod has several
    containers and none is named, unless ``any_container``.
    """
    what = f"job {job.metadata.namespace}/{job.metadata.name}"
    names = [each.name for each in job.spec.tasks]
    if task and task not in names:
        raise NoContainerError(what, f"task {task!r} not found; its tasks are {', '.join(names)}")
    matching = sorted(
        (
            pod
            for pod in pods
            if task in ("", _task(pod)) and (indexes is None or _index(pod) in indexes)
        ),
        key=lambda pod: (_task(pod), _index(pod), pod.metadata.name),
    )
    if not matching:
        raise NoContainerError(what, "it has no matching pod now")
    running = [pod for pod in matching if pod.status.phase == RUNNING]
    if not running:
        raise NoContainerError(what, _why_not(matching))
    pod = running[0]
    containers = [each.name for each in pod.spec.containers]
    if container and container not in containers:
        reason = f"container {container!r} not found in {pod.metadata.name}"
        raise NoContainerError(what, f"{reason}; its containers are {', '.join(containers)}")
    if not container and len(containers) > 1 and not any_container:
        reason = f"{pod.metadata.name} has several containers: {', '.join(containers)}"
        raise NoContainerError(what, f"{reason}; specify one")
    return Target(pod.metadata.namespace, pod.metadata.name, container or containers[0])


def _why_not(pods: list[core.Pod]) -> str:
    """The reason why no session can be opened: none of these pods is Running."""
    counts: dict[str, int] = {}
    for pod in pods:
        phase = pod.status.phase or "Pending"
        counts[phase] = counts.get(phase, 0) + 1
    if len(pods) == 1:
        return f"pod {pods[0].metadata.name} is {next(iter(counts))}, not Running"
    listed = ", ".join(f"{count} {phase}" for phase, count in sorted(counts.items()))
    return f"none of its {len(pods)} matching pods is Running ({listed})"


def _task(pod: core.Pod) -> str:
    return pod.metadata.annotation(keys.TASK_SPEC) or ""


def _index(pod: core.Pod) -> int:
    text = pod.metadata.label(keys.TASK_INDEX) or pod.metadata.annotation(keys.TASK_INDEX) or ""
    return int(text) if text.isdecimal() else -1
