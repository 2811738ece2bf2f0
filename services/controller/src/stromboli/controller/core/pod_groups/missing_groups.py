"""Warnings for unmanaged pods that name a PodGroup that does not exist: no other object shows why
these pods are pending.

The creator of such pods also creates the PodGroup, before or after them, so the Warning is delayed.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from stromboli.controller.core import commands
from stromboli.controller.core.store import controller_cache, unmanaged_pod_index
from stromboli.controller.core.tasks import tasks
from stromboli.shared import keys
from stromboli.shared.api import core, kinds

WARNED_AFTER = timedelta(seconds=30)
"""How long a pod waits for its PodGroup before it gets a Warning: long enough for the controller
that creates the PodGroup to restart."""
MAX_WARNED = 100
"""Maximum number of pods of one PodGroup that get a Warning."""


def warnings(cache: controller_cache.ControllerCache, key: str, now: datetime) -> commands.Plan:
    """A Warning on each pod that has waited for long enough."""
    name = key.partition("/")[2]
    why = (
        f"the pod waits for PodGroup {name}, which does not exist: create it, or remove the "
        f"annotation {keys.GROUP_NAME}; then Stromboli creates one for the pod"
    )
    stage = tuple(
        commands.event_about(kinds.PODS, pod, "Warning", "NoPodGroup", why, now)
        for at, pod in _waiting(cache, key)
        if at <= now
    )
    return (stage,) if stage else ()


def due(cache: controller_cache.ControllerCache, key: str, now: datetime) -> datetime | None:
    """The time at which the next pod has waited for long enough."""
    return min((at for at, _ in _waiting(cache, key) if at > now), default=None)


def _waiting(
    cache: controller_cache.ControllerCache, key: str
) -> Iterator[tuple[datetime, core.Pod]]:
    """Pods with the times of their Warnings. Excludes pods of PodGroups that this controller
    creates: it restores these PodGroups instead."""
    if cache.state(kinds.POD_GROUPS, key) is not None:
        return
    for pod in cache.members(key)[:MAX_WARNED]:
        created = pod.metadata.creation_timestamp
        if (
            created is not None
            and pod.spec.scheduler_name in cache.scheduler_names
            and not pod.spec.node_name
            and not (tasks.has_finished(pod) or cache.is_terminating(pod))
            and not kinds.JOBS.controls(pod)
            and pod.metadata.annotation(keys.GROUP_NAME) != unmanaged_pod_index.group_name(pod)
        ):
            yield cache.api_clock.host_time(created + WARNED_AFTER), pod
