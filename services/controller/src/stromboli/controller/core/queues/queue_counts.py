"""What a queue's status tells: its PodGroups by phase, and what its pods and those below hold.

Written on change only, and as an item of its own, so that a busy queue's numbers never stand in
the way of its state. Source: spec/jobs.md 1.4, spec/scheduling.md 9 (``allocated`` counts for every
queue above, too). Unlike the reference the counters are kept.
"""

from collections import Counter
from datetime import datetime
from typing import Any

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.store import controller_cache
from stromboli.shared.api import kinds
from stromboli.shared.formats import units

COUNTED = ("pending", "inqueue", "running", "unknown", "completed")
"""The phases of PodGroups, as the status has them."""


def reconcile(cache: controller_cache.ControllerCache, name: str, now: datetime) -> commands.Plan:
    """Write the numbers, if they are others."""
    queue = cache.queue(name)
    if queue is None or cache.is_going(queue):
        return ()
    phases = Counter(phase.lower() for phase in cache.queue_usage.phases(name))
    counts = {field: phases[field] for field in COUNTED}
    held = cache.queue_usage.held(cache.queue_usage.tree.below(name))
    stands = queue.status.allocated or {}
    is_told = all(getattr(queue.status, field) == count for field, count in counts.items())
    shown = {resource: units.text(resource, value) for resource, value in held.items()}
    # A sum may be more than is read of one quantity: what we wrote is known by its words, too.
    if is_told and (stands == shown or _read(stands) == held):
        return ()
    # A merge keeps what it does not name.
    gone = {resource: None for resource in stands if resource not in held}
    changes = {**counts, "allocated": {**gone, **shown}}
    patch = manifests.merge(kinds.QUEUES, queue, subresource="status", status=changes)
    return ((patch,),)


def _read(allocated: dict[str, Any]) -> units.Amounts | None:
    try:
        found = units.amounts(allocated)
    except ValueError:
        return None  # somebody else's words: ours stand there next
    return found if all(found.values()) else None
