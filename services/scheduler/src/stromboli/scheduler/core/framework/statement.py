"""A transaction over a session: placements, nominations and evictions, committed or rolled back as
a whole.
"""

import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from stromboli.scheduler.core.model import entities

if TYPE_CHECKING:
    from stromboli.scheduler.core.framework import session as sessions


class Operation(msgspec.Struct, frozen=True, eq=False):
    """One change of tasks of one class, job and status.

    ``kind``: allocate, pipeline, evict or requeue. ``before``: the previous status. ``nodes``: one
    per task.
    """

    kind: str
    tasks: Sequence[entities.Task]
    nodes: Sequence[str]
    before: entities.Status
    reason: str = ""
    eviction_occurred: bool = False


class Statement:
    """Changes apply to the session immediately; ``commit`` makes them decisions, ``discard`` undoes
    them in reverse order.
    """

    def __init__(self, session: "sessions.Session") -> None:
        self._session = session
        self.operations: list[Operation] = []

    def allocate(self, task: entities.Task, node: str) -> None:
        """Place the task on idle resources."""
        self.allocate_run((task,), (node,))

    def allocate_run(self, tasks: Sequence[entities.Task], nodes: Sequence[str]) -> None:
        """Place pending tasks of one class and job on idle resources."""
        self._place("allocate", tasks, nodes, entities.Status.ALLOCATED, eviction_occurred=False)

    def pipeline(self, task: entities.Task, node: str, eviction_occurred: bool = False) -> None:
        """Nominate the task to resources that terminating tasks will free."""
        self._place("pipeline", (task,), (node,), entities.Status.PIPELINED, eviction_occurred)

    def evict(self, task: entities.Task, reason: str) -> None:
        """Evict the task; its node counts it as terminating."""
        self.operations.append(Operation("evict", (task,), (task.node,), task.status, reason))
        self._session.change(task, entities.Status.RELEASING, task.node)
        self._session.notify_deallocated((task,))

    def requeue(self, tasks: Iterable[entities.Task]) -> None:
        """Return tasks that another statement evicted or nominated to the status Pending, which
        they have in the next session. Only for a trial that is discarded."""
        for _, equal in itertools.groupby(tasks, _what_changes_together):
            run = list(equal)
            before, occurred = run[0].status, run[0].eviction_occurred
            nodes = [task.node for task in run]
            self.operations.append(
                Operation("requeue", run, nodes, before, eviction_occurred=occurred)
            )
            self._session.change_run(run, entities.Status.PENDING, nodes)
            if before is entities.Status.PIPELINED:
                self._session.notify_deallocated(run)
            for task in run:
                task.node, task.eviction_occurred = "", False

    def commit(self) -> None:
        """Turn all changes into decisions of the session. Evictions are attributed to the nominated
        job.
        """
        served = next(
            (each.tasks[0].job for each in self.operations if each.kind == "pipeline"), ""
        )
        for operation in self.operations:
            for task in operation.tasks:
                task.last_status = None
            if operation.kind == "allocate":
                self._session.decide_binds(operation.tasks)
            elif operation.kind == "evict":
                for task in operation.tasks:
                    self._session.decide_eviction(task, operation.reason, served)
        self.operations.clear()

    def discard(self) -> None:
        """Undo all changes; tasks keep the name of the node where they were tried."""
        for operation in reversed(self.operations):
            tasks = operation.tasks
            if operation.kind == "requeue":
                self._undo_requeue(operation)
                continue
            for task in tasks:
                task.last_status, task.last_node = task.status, task.node
            self._session.change_run(tasks, operation.before, operation.nodes)
            if operation.kind == "evict":
                self._session.notify_allocated(tasks)
                continue
            self._session.notify_deallocated(tasks)
            for task in tasks:
                task.node = ""
                task.eviction_occurred = False
        self.operations.clear()

    def merge(self, other: "Statement") -> None:
        """Take over the changes of the other statement."""
        self.operations.extend(other.operations)
        other.operations.clear()

    def save(self) -> list[Operation]:
        """The changes, which ``recover`` repeats after ``discard``."""
        return list(self.operations)

    def recover(self, operations: Sequence[Operation]) -> None:
        """Repeat saved changes."""
        for each in operations:
            if each.kind == "evict":
                for task in each.tasks:
                    self.evict(task, each.reason)
            elif each.kind == "allocate":
                self.allocate_run(each.tasks, each.nodes)
            else:
                for task, node in zip(each.tasks, each.nodes, strict=True):
                    self.pipeline(task, node, each.eviction_occurred)

    def _undo_requeue(self, operation: Operation) -> None:
        self._session.change_run(operation.tasks, operation.before, operation.nodes)
        for task in operation.tasks:
            task.eviction_occurred = operation.eviction_occurred
        if operation.before is entities.Status.PIPELINED:
            self._session.notify_allocated(operation.tasks)

    def _place(
        self,
        kind: str,
        tasks: Sequence[entities.Task],
        nodes: Sequence[str],
        status: entities.Status,
        eviction_occurred: bool,
    ) -> None:
        before = tasks[0].status
        self.operations.append(
            Operation(kind, tasks, nodes, before, eviction_occurred=eviction_occurred)
        )
        self._session.change_run(tasks, status, nodes)
        if eviction_occurred or before is not entities.Status.PENDING:  # else it is False already
            for task in tasks:
                task.eviction_occurred = eviction_occurred
        self._session.notify_allocated(tasks)


def _what_changes_together(task: entities.Task) -> Hashable:
    return (task.job, task.role, task.task_class, task.status, task.eviction_occurred)
