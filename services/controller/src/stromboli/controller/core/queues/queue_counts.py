"""Counts in a queue's status: PodGroups by phase, and the usage of the queue and its descendants.

They are written on change only, and have their own reconcile key, so that the counts of a busy
queue never delay its state. As in Volcano, ``allocated`` includes descendants. Unlike in Volcano,
the counters are kept up to date.
"""

from collections import Counter
from datetime import datetime
from typing import Any

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.store import controller_cache
from stromboli.shared.api import kinds
from stromboli.shared.formats import units

COUNTED = ("pending", "inqueue", "running", "unknown", "completed")
"""The fields of the status that count PodGroups by phase."""


def reconcile(cache: controller_cache.ControllerCache, name: str, now: datetime) -> commands.Plan:
    """The patch of the queue's counts, if they changed."""
    queue = cache.queue(name)
    if queue is None or cache.is_terminating(queue):
        return ()
    phases = Counter(phase.lower() for phase in cache.queue_usage.phases(name))
    counts = {field: phases[field] for field in COUNTED}
    usage = cache.queue_usage.held(cache.queue_usage.tree.below(name))
    stands = queue.status.allocated or {}
    is_current = all(getattr(queue.status, field) == count for field, count in counts.items())
    quantities = {resource: units.text(resource, value) for resource, value in usage.items()}
    # A sum may exceed the range of a decoded quantity, so compare the written text, too.
    if is_current and (stands == quantities or _read(stands) == usage):
        return ()
    # A merge patch keeps fields that it does not contain.
    gone = {resource: None for resource in stands if resource not in usage}
    changes = {**counts, "allocated": {**gone, **quantities}}
    patch = manifests.merge(kinds.QUEUES, queue, subresource="status", status=changes)
    return ((patch,),)


def _read(allocated: dict[str, Any]) -> units.Amounts | None:
    try:
        usage = units.amounts(allocated)
    except ValueError:
        return None  # another client wrote it: the next write replaces it
    return usage if all(usage.values()) else None
