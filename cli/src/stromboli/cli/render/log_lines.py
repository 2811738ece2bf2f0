"""The output of many containers as lines of one: whose each is, in which colour. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from stromboli.cli.render import pod_status
from stromboli.shared import keys
from stromboli.shared.api import batch

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
"""Neighbours differ; with more pods than colours they come again."""
_STARTED = ("Running", "Succeeded", "Failed")


class Source(msgspec.Struct, frozen=True):
    """One container whose output is wanted. ``restarts``: it is a new one with each."""

    pod: str
    uid: str
    container: str
    label: str
    colour: str
    restarts: int = 0
    is_over: bool = False


class LineBuffer:
    """Whole lines of a stream of chunks. What is no UTF-8 is shown as such, never lost."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The lines that the chunk completes."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        return (line.decode(errors="backslashreplace").rstrip("\r") for line in whole)

    def end(self) -> Iterator[str]:
        """What stands at the end without a newline."""
        rest, self._rest = self._rest, b""
        return iter([rest.decode(errors="backslashreplace")] if rest else [])


def log_sources(pods: Iterable[pod_status.Pod], job: str, container: str | None) -> list[Source]:
    """The containers that have something to tell, by task and index."""
    ordered = sorted(pods, key=_order)
    several = any(len(pod.spec.containers) > 1 for pod in ordered) and container is None
    found = []
    for place, pod in enumerate(ordered):
        if pod.status.phase not in _STARTED:
            continue
        names = [one.name for one in pod.spec.containers]
        for name in names if container is None else [container]:
            state = next((one for one in pod.status.container_statuses if one.name == name), None)
            found.append(
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
    return found


def select_pods(
    pods: Iterable[pod_status.Pod], task: str | None, index: int | None
) -> list[pod_status.Pod]:
    """The pods of this task and index."""
    return [pod for pod in pods if task in (None, task_of(pod)) and index in (None, index_of(pod))]


def unknown_task(job: batch.Job, task: str | None) -> str:
    """What is wrong with a task that the job has not; empty if nothing is."""
    names = [each.name for each in job.spec.tasks]
    if task is None or task in names:
        return ""
    return f"there is no task {task!r}; there are {', '.join(names)}"


def short_name(pod: pod_status.Pod, job: str) -> str:
    """A pod without its job's name: ``worker-3``."""
    return pod.metadata.name.removeprefix(f"{job}-")


def line_prefixes(found: Sequence[Source]) -> dict[str, str]:
    """Label -> what stands before its lines, all of one width."""
    width = max((len(source.label) for source in found), default=0)
    return {source.label: f"{source.label.ljust(width)} | " for source in found}


def task_of(pod: pod_status.Pod) -> str:
    """The name of the pod's task."""
    return pod.metadata.annotation(keys.TASK_SPEC) or ""


def index_of(pod: pod_status.Pod) -> int:
    """The pod's number in its task, -1 if it has none."""
    own = pod.metadata.label(keys.TASK_INDEX) or pod.metadata.annotation(keys.TASK_INDEX) or ""
    found = re.search(r"(\d+)$", own or pod.metadata.name)
    return int(found[1]) if found else -1


def _order(pod: pod_status.Pod) -> tuple[str, int, str]:
    return task_of(pod), index_of(pod), pod.metadata.name
