"""What a plugin is, and helpers for the pod specs it changes."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from stromboli.controller.core import commands, tasks
from stromboli.shared.api.batch import Job

PodSpec = dict[str, Any]
"""The spec of a pod being built, as JSON has it."""


class Plugin(Protocol):
    """One job plugin. Arguments are those of the job's spec."""

    def problem(self, arguments: Sequence[str]) -> str:
        """What is wrong with the arguments, empty if nothing; values read so far still count."""

    def resources(self, job: Job, arguments: Sequence[str]) -> tuple[commands.Create, ...]:
        """Objects that belong to the job as a whole."""

    def removals(self, job: Job) -> tuple[commands.Delete, ...]:
        """The deletions that undo ``resources``."""

    def digest(self, job: Job) -> str:
        """What ``resources`` depend on and may change in a job's life, as a short text."""

    def shape(
        self, spec: PodSpec, job: Job, member: tasks.Member, arguments: Sequence[str]
    ) -> None:
        """Add to a pod's spec what its containers need."""


def containers(spec: PodSpec) -> Iterator[dict[str, Any]]:
    """Init containers and containers."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def add_env(container: dict[str, Any], variables: Sequence[dict[str, Any]]) -> None:
    """Append variables; the last of a name counts."""
    container["env"] = [*(container.get("env") or ()), *variables]
