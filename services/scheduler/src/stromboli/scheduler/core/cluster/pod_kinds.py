"""Kinds of pods: the pods that no selector can tell apart."""

from typing import NamedTuple

from stromboli.scheduler.core.model import entities


class PodKind(NamedTuple):
    """Pods that no matcher can tell apart."""

    task_class: entities.TaskClass
    alive: bool


def pod_kind(task: entities.Task) -> PodKind:
    """The kind of a task's pod."""
    return PodKind(task.task_class, task.pod.metadata.deletion_timestamp is None)
