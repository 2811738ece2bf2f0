"""Gangs whose plan of pods is on its way: sessions wait for it briefly.

The controller requests a PodGroup and the dry runs of its pods at the same time, and notes on the
PodGroup that a plan follows. The two records are on different topics, so a session may read the
PodGroup first. Rules:

1. Sessions do not admit a gang whose PodGroup announces a plan, until a record of
   ``batch.plans`` for it was read: a plan, or one without tasks if its pods are not planned. The
   gang is skipped as if its PodGroup did not exist, and gets no explanation.
2. The wait ends ``LONGEST_WAIT`` after the PodGroup's creation, by the session's time. Then the
   gang is admitted without a plan, and its pods are created pending. So a controller that stops, or
   a user who writes the annotation, delays a gang by that time at most.

Liveness: the record triggers a session, and so does the end of the wait.
"""

from collections.abc import Collection
from datetime import timedelta

from stromboli.scheduler.core.config import durations
from stromboli.scheduler.core.framework import session

LONGEST_WAIT = timedelta(seconds=3)
"""A plan usually follows within 20 ms. Creation times are whole seconds, and the controller repeats
a dry run that failed."""


def hold_back(opened: session.Session, awaited: Collection[str]) -> frozenset[str]:
    """Keep the session from deciding about gangs whose plan follows; return these gangs.
    ``awaited``: PodGroups that announce a plan that has not been read. Call it before the actions.
    O(awaited)."""
    waiting = set(opened.waiting) if awaited else set()
    awaiting_plan = frozenset(key for key in awaited if key in waiting and _is_held(opened, key))
    for key in awaiting_plan:
        opened.jobs[key].is_backing_off = True
    return awaiting_plan


def _is_held(opened: session.Session, key: str) -> bool:
    job = opened.jobs[key]
    created = job.pod_group.metadata.creation_timestamp
    if not job.is_pending or created is None or created > durations.after(opened.now, LONGEST_WAIT):
        return False
    return not opened.reached(durations.after(created, LONGEST_WAIT))
