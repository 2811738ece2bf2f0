"""The logs of a job's pods as lines with their pod and container. Pure."""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from stromboli.shared import keys
from stromboli.shared.api import core

STARTED = ("Running", "Succeeded", "Failed")
"""Phases of pods that may have a container with a log."""


class LogLine(msgspec.Struct, frozen=True):
    """A line of a container's log, without its end."""

    pod: str
    container: str
    text: str


class LineBuffer:
    """Splits a stream of chunks into lines. Bytes that are not UTF-8 are escaped."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The lines that the chunk completes."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        return (line.decode(errors="backslashreplace").rstrip("\r") for line in whole)

    def end(self) -> Iterator[str]:
        """The rest of the stream without a newline."""
        rest, self._rest = self._rest, b""
        return iter([rest.decode(errors="backslashreplace")] if rest else [])


def started_containers(
    pods: Iterable[core.Pod], task: str, indexes: Collection[int]
) -> list[tuple[str, str]]:
    """Pod and container of each log, by task and index; an empty ``task`` and no ``indexes`` select
    all of them."""
    chosen = [
        (pod.metadata.annotation(keys.TASK_SPEC) or "", index_of(pod), pod)
        for pod in pods
        if pod.status.phase in STARTED
    ]
    return [
        (pod.metadata.name, container.name)
        for name, index, pod in sorted(chosen, key=lambda each: each[:2])
        for container in pod.spec.containers
        if (not task or name == task) and (not indexes or index in indexes)
    ]


def index_of(pod: core.Pod) -> int:
    """The index of a pod in its task; -1 if it has none."""
    text = pod.metadata.label(keys.TASK_INDEX) or pod.metadata.annotation(keys.TASK_INDEX) or ""
    return int(text) if text.isdecimal() else -1
