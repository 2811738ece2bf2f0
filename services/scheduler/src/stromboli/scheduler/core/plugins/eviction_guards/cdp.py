"""The plugin ``cdp`` (cooldown protection): does not evict pods that started recently."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from stromboli.scheduler.core.config import configuration, durations
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import keys


class Plugin:
    """Has no arguments: a label or annotation of the pod states the cooldown."""

    def __init__(self, options: configuration.PluginOptions) -> None: ...

    def open(self, ssn: session.Session) -> None:
        """Remove protected pods from the candidates of preempt and reclaim."""

        def unprotected(
            evictor: entities.Task, candidates: Sequence[entities.Task]
        ) -> extension_points.Victims:
            return extension_points.Victims(
                [task for task in candidates if not _is_protected(task, ssn)]
            )

        ssn.add_preemptable(unprotected)
        ssn.add_reclaimable(unprotected)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""


def _is_protected(task: entities.Task, ssn: session.Session) -> bool:
    metadata = task.pod.metadata
    text = metadata.label(keys.COOLDOWN_TIME) or metadata.annotation(keys.COOLDOWN_TIME)
    if text is None or task.pod.status.phase != "Running":
        return False
    try:
        cooldown = durations.duration(text)
    except ValueError:
        return False
    return any(
        condition.type == "PodScheduled"
        and condition.status == "True"
        and condition.last_transition_time is not None
        and not _has_passed(condition.last_transition_time, cooldown, ssn)
        for condition in task.pod.status.conditions
    )


def _has_passed(since: datetime, cooldown: timedelta, ssn: session.Session) -> bool:
    try:
        return ssn.reached(since + cooldown)
    except OverflowError:
        return False
