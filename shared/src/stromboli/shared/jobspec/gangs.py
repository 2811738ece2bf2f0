"""The gang of a job: how many pods of each task it needs, and the requests of these pods."""

from collections.abc import Mapping, Sequence

from stromboli.shared import decoding
from stromboli.shared.api import core
from stromboli.shared.api.batch import TaskSpec


def template_of(task: TaskSpec) -> core.PodSpec:
    """Decode a task's template. Raises msgspec.DecodeError."""
    return decoding.from_json(task.template.spec, core.PodSpec | None) or core.PodSpec()


def least(task: TaskSpec) -> int:
    """The number of the task's pods that the gang needs."""
    if task.min_available is not None:
        return task.min_available
    parts = task.partition_policy
    if parts is not None and parts.min_partitions and parts.partition_size:
        return parts.min_partitions * parts.partition_size
    return task.replicas


def smallest(
    tasks: Sequence[TaskSpec], size: int, priorities: Mapping[str, int]
) -> list[tuple[TaskSpec, core.PodSpec, int]]:
    """How many pods of each task the smallest gang of ``size`` pods has, tasks of high priority
    first. ``priorities``: PriorityClass -> its value. Raises msgspec.DecodeError."""
    ordered = sorted(
        ((task, template_of(task)) for task in tasks),
        key=lambda pair: -priorities.get(pair[1].priority_class_name, 0),
    )
    left = size
    counts = [0] * len(ordered)
    needs = [least(task) for task, _ in ordered]
    # The gang needs all required members first, unless it is smaller than that.
    rounds = [[task.replicas for task, _ in ordered]]
    if left >= sum(needs):
        rounds.insert(0, needs)
    for most in rounds:
        for position, limit in enumerate(most):
            added_pods = min(left, max(0, limit - counts[position]))
            counts[position] += added_pods
            left -= added_pods
    return [(task, spec, count) for (task, spec), count in zip(ordered, counts, strict=True)]
