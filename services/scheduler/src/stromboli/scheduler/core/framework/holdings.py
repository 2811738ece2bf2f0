"""What the jobs of each queue hold and want, kept as sums while jobs change.

So opening a session costs the books of queues, not a walk over jobs and pods (spec/plugins 0).
"""

import numpy as np

from stromboli.scheduler.core.framework import amounts, model

OWN_GATE = "scheduling.volcano.sh/queue-allocation-gate"
"""The scheduling gate that waits for the queue to have room."""


class Holdings:
    """Vectors over resources. ``allocated``: what tasks hold; ``request``: that, and what pending
    tasks ask for; ``elastic``: what jobs hold beyond their minimum resources; ``awaited``: what
    jobs that passed the door will still take. ``jobs``: how many there are."""

    __slots__ = ("jobs", "table")

    def __init__(self, width: int) -> None:
        self.table: amounts.Table = np.zeros((4, width), np.int64)
        self.jobs = 0

    @property
    def allocated(self) -> amounts.Vector:
        """What tasks hold."""
        row: amounts.Vector = self.table[0]
        return row

    @property
    def request(self) -> amounts.Vector:
        """What tasks hold and what pending ones ask for."""
        row: amounts.Vector = self.table[1]
        return row

    @property
    def elastic(self) -> amounts.Vector:
        """What jobs hold beyond their minimum resources."""
        row: amounts.Vector = self.table[2]
        return row

    @property
    def awaited(self) -> amounts.Vector:
        """What jobs that passed the door will still take of their minimum resources."""
        row: amounts.Vector = self.table[3]
        return row


class Books:
    """Holdings by queue."""

    def __init__(self, width: int) -> None:
        self.queues: dict[str, Holdings] = {}
        """Only queues that have jobs."""
        self._width = width
        self._parts: dict[str, tuple[str, amounts.Table]] = {}

    def put(self, job: model.Job) -> None:
        """The job as it is now. O(pending and gated tasks)."""
        self.drop(job.key)
        part = np.stack([job.allocated, requested(job), job.elastic, coming(job)])
        self._parts[job.key] = (job.queue, part)
        found = self.queues.setdefault(job.queue, Holdings(self._width))
        found.table += part
        found.jobs += 1

    def drop(self, key: str) -> None:
        """The job is not there any more."""
        queue, part = self._parts.pop(key, ("", None))
        if part is not None:
            found = self.queues[queue]
            found.table -= part
            found.jobs -= 1
            if not found.jobs:
                del self.queues[queue]

    def widen(self, width: int) -> None:
        """There are more resources."""
        more = ((0, 0), (0, width - self._width))
        self._width = width
        for found in self.queues.values():
            found.table = np.pad(found.table, more)
        for key, (queue, part) in self._parts.items():
            self._parts[key] = (queue, np.pad(part, more))


def requested(job: model.Job) -> amounts.Vector:
    """What the job holds and what its pending tasks ask for. O(pending tasks)."""
    pending = job.by_status.get(model.Status.PENDING, {})
    total = job.allocated.copy()
    for task in pending.values():
        total += task.request
    return total


def without_gated(job: model.Job, amount: amounts.Vector) -> amounts.Vector:
    """The amount less what gated tasks ask for, never below zero.

    A task whose only gate is the one that this scheduler lifts itself counts as if ungated.
    """
    remaining = amount.copy()
    for task in job.gated.values():
        if not is_own_gate_only(task):
            remaining -= task.request
    positive: amounts.Vector = np.maximum(remaining, 0)
    return positive


def is_own_gate_only(task: model.Task) -> bool:
    """The task waits for nothing but its queue."""
    return tuple(gate.name for gate in task.pod.spec.scheduling_gates) == (OWN_GATE,)


def coming(job: model.Job) -> amounts.Vector:
    """What the job will still take of its minimum resources, if it is past its queue's door.

    A running gang below its minimum takes nothing more: some task may have finished.
    """
    least = job.min_request
    is_awaited = job.phase == "Inqueue" or (
        job.phase == "Running" and job.count(*model.ALLOCATED) >= job.min_available
    )
    if least is None or not is_awaited:
        return np.zeros_like(job.allocated)
    return without_gated(job, amounts.beyond(least, job.allocated))
