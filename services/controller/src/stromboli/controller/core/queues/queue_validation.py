"""Validates queues that were created without admission review, by the same rules.

An invalid queue works as far as possible, for the jobs in it. An annotation records the violations
for as long as they last, so that a new leader does not report them again; a Warning reports each
change.
"""

from datetime import datetime

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.store import controller_cache
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.jobspec.validation.queueing import queue_tree, queues

LONGEST = 2000
"""Maximum length of the annotation in characters, enough for about thirty violations."""


def reconcile(cache: controller_cache.ControllerCache, name: str, now: datetime) -> commands.Plan:
    """Record the queue's violations, or remove the record. O(depth + children)."""
    queue, queue_usage = cache.queue(name), cache.queue_usage
    if queue is None or cache.is_terminating(queue):
        return ()
    if queue_tree.parent_of(queue) in cache.unreadable(kinds.QUEUES):
        return ()  # its parent is unreadable
    summary = "; ".join(
        it.message
        for it in queues.validate_existing(queue, queue_usage.tree, queue_usage.max_depth)
    )
    if len(summary) > LONGEST:
        summary = f"{summary[: LONGEST - 3]}..."
    stands = queue.metadata.annotation(keys.VIOLATIONS) or ""
    if summary == stands:
        return ()
    if summary:
        event = commands.event_about(kinds.QUEUES, queue, "Warning", "Refused", summary, now)
    else:
        why = "the queue is valid again"
        event = commands.event_about(kinds.QUEUES, queue, "Normal", "Accepted", why, now)
    annotations = {keys.VIOLATIONS: summary or None}
    return ((event, manifests.merge(kinds.QUEUES, queue, metadata={"annotations": annotations})),)
