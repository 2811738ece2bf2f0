"""A transaction over a session: placements, promises and evictions, kept or taken back whole."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from stromboli.scheduler.core.framework import model

if TYPE_CHECKING:
    from stromboli.scheduler.core.framework import session as sessions


class Operation(msgspec.Struct, frozen=True, eq=False):
    """One change. ``kind``: allocate, pipeline or evict; ``before``: the status it replaced."""

    kind: str
    task: model.Task
    node: str
    before: model.Status
    reason: str = ""
    eviction_occurred: bool = False


class Statement:
    """Changes apply to the session at once; ``commit`` makes them decisions, ``discard`` undoes
    them in reverse."""

    def __init__(self, session: "sessions.Session") -> None:
        self._session = session
        self.operations: list[Operation] = []

    def allocate(self, task: model.Task, node: str) -> None:
        """Place the task on what is idle."""
        self._place(task, node, model.Status.ALLOCATED, "allocate", eviction_occurred=False)

    def pipeline(self, task: model.Task, node: str, eviction_occurred: bool = False) -> None:
        """Promise the task what is being released."""
        self._place(task, node, model.Status.PIPELINED, "pipeline", eviction_occurred)

    def evict(self, task: model.Task, reason: str) -> None:
        """Take the task's place away; its node keeps it as releasing."""
        self.operations.append(Operation("evict", task, task.node, task.status, reason))
        self._session.change(task, model.Status.RELEASING, task.node)
        self._session.tell_deallocated(task)

    def commit(self) -> None:
        """The session decides all of it. Evictions are for the job that is promised room."""
        served = next((each.task.job for each in self.operations if each.kind == "pipeline"), "")
        for operation in self.operations:
            operation.task.last_status = None
            if operation.kind == "allocate":
                self._session.decide_bind(operation.task)
            elif operation.kind == "evict":
                self._session.decide_eviction(operation.task, operation.reason, served)
        self.operations.clear()

    def discard(self) -> None:
        """Nothing of it happened; tasks remember where they had been tried."""
        for operation in reversed(self.operations):
            task = operation.task
            task.last_status, task.last_node = task.status, task.node
            self._session.change(task, operation.before, operation.node)
            if operation.kind == "evict":
                self._session.tell_allocated(task)
            else:
                self._session.tell_deallocated(task)
                task.node = ""
                task.eviction_occurred = False
        self.operations.clear()

    def merge(self, other: "Statement") -> None:
        """Take over what the other statement did."""
        self.operations.extend(other.operations)
        other.operations.clear()

    def save(self) -> list[Operation]:
        """What was done, to be replayed after ``discard``."""
        return list(self.operations)

    def recover(self, operations: Sequence[Operation]) -> None:
        """Do again what was saved."""
        for operation in operations:
            if operation.kind == "evict":
                self.evict(operation.task, operation.reason)
            elif operation.kind == "allocate":
                self.allocate(operation.task, operation.node)
            else:
                self.pipeline(operation.task, operation.node, operation.eviction_occurred)

    def _place(
        self,
        task: model.Task,
        node: str,
        status: model.Status,
        kind: str,
        eviction_occurred: bool,
    ) -> None:
        self.operations.append(
            Operation(kind, task, node, task.status, eviction_occurred=eviction_occurred)
        )
        self._session.change(task, status, node)
        task.eviction_occurred = eviction_occurred
        self._session.tell_allocated(task)
