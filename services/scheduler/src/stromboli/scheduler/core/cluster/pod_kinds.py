"""Kinds of pods: pods that every selector treats alike."""

from typing import NamedTuple

from stromboli.scheduler.core.model import entities


class PodKind(NamedTuple):
    """Pods of one task class, all of them being deleted or none: every matcher treats them
    alike."""

    task_class: entities.TaskClass
    alive: bool


def pod_kind(task: entities.Task) -> PodKind:
    """The kind of a task's pod."""
    return PodKind(task.task_class, task.pod.metadata.deletion_timestamp is None)
