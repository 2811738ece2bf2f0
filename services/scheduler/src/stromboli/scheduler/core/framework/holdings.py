"""What the jobs of each queue hold and want, kept as sums while jobs change.

So opening a session costs the books of queues, not a walk over jobs and pods (spec/plugins 0).
"""

from collections import Counter
from collections.abc import Collection

import numpy as np

from stromboli.scheduler.core.framework import amounts, model

OWN_GATE = "scheduling.volcano.sh/queue-allocation-gate"
"""The scheduling gate that waits for the queue to have room."""


class Holdings:
    """Sums by resource. ``allocated``: what tasks hold; ``request``: that, and what pending
    tasks ask for; ``elastic``: what jobs hold beyond their minimum resources; ``awaited``: what
    jobs that passed the door will still take. ``jobs``: how many there are."""

    __slots__ = ("jobs", "table")

    def __init__(self, width: int) -> None:
        self.table: amounts.Sum = np.zeros((4, width), np.object_)
        self.jobs = 0

    @property
    def allocated(self) -> amounts.Sum:
        """What tasks hold."""
        row: amounts.Sum = self.table[0]
        return row

    @property
    def request(self) -> amounts.Sum:
        """What tasks hold and what pending ones ask for."""
        row: amounts.Sum = self.table[1]
        return row

    @property
    def elastic(self) -> amounts.Sum:
        """What jobs hold beyond their minimum resources."""
        row: amounts.Sum = self.table[2]
        return row

    @property
    def awaited(self) -> amounts.Sum:
        """What jobs that passed the door will still take of their minimum resources."""
        row: amounts.Sum = self.table[3]
        return row


class Books:
    """Holdings by queue."""

    def __init__(self, width: int) -> None:
        self.queues: dict[str, Holdings] = {}
        """Only queues that have jobs."""
        self._width = width
        self._parts: dict[str, tuple[str, amounts.Sum]] = {}

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
        self._width = width
        for found in self.queues.values():
            found.table = amounts.widened_sum(found.table, width)
        for key, (queue, part) in self._parts.items():
            self._parts[key] = (queue, amounts.widened_sum(part, width))


def requested(job: model.Job) -> amounts.Sum:
    """What the job holds and what its pending tasks ask for. O(pending tasks)."""
    found: amounts.Sum = job.allocated + together(job.unplaced, len(job.allocated))
    return found


def together(tasks: Collection[model.Task], width: int) -> amounts.Sum:
    """What all the tasks ask for. O(tasks), and O(width) for each kind of them."""
    kinds = {task.task_class.shape: task.summand for task in tasks}
    if not kinds:
        return amounts.nothing(width)
    counts = Counter(task.task_class.shape for task in tasks)
    return amounts.summed([each * counts[shape] for shape, each in kinds.items()], width)


def without_gated(job: model.Job, amount: amounts.Vector | amounts.Sum) -> amounts.Sum:
    """The amount less what gated tasks ask for, never below zero.

    A task whose only gate is the one that this scheduler lifts itself counts as if ungated.
    """
    gated = [task for task in job.gated.values() if not is_own_gate_only(task)]
    return amounts.beyond(amount, together(gated, len(amount)))


def is_own_gate_only(task: model.Task) -> bool:
    """The task waits for nothing but its queue."""
    return tuple(gate.name for gate in task.pod.spec.scheduling_gates) == (OWN_GATE,)


def coming(job: model.Job) -> amounts.Sum:
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
