"""What a session works on: queues, jobs and their tasks, as spec/scheduling 1 has them.

A job is a PodGroup with its pods, a task is a pod. A session owns its model: only statements
change statuses and places, and they keep the sums here right.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

import msgspec

from stromboli.scheduler.core import shapes
from stromboli.scheduler.core.framework import amounts
from stromboli.shared import units
from stromboli.shared.api import core, scheduling


class Status(enum.StrEnum):
    """A task's state, in the words that users read in conditions."""

    PENDING = "Pending"
    ALLOCATED = "Allocated"
    PIPELINED = "Pipelined"
    BINDING = "Binding"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


ALLOCATED = frozenset({Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING})
READY = ALLOCATED | {Status.SUCCEEDED}
VALID = READY | {Status.PIPELINED, Status.PENDING}
PREEMPTABLE = frozenset({Status.BOUND, Status.RUNNING})
SCHEDULED = frozenset({Status.RUNNING, Status.BOUND, Status.SUCCEEDED, Status.FAILED})
COMPLETED = frozenset({Status.SUCCEEDED, Status.FAILED})
ON_NODE = ALLOCATED | {Status.PIPELINED, Status.RELEASING, Status.UNKNOWN}


class TaskClass(msgspec.Struct, frozen=True, eq=False):
    """What equal tasks have in common; interned, compared by identity.

    Predicates and scores answer once per class. ``labels`` are only those that some pod's affinity
    or spread looks at, so that an index label does not make every task its own class.
    """

    number: int
    shape: shapes.Shape
    namespace: str
    labels: Mapping[str, str]
    spec: core.PodSpec


class Task(msgspec.Struct, eq=False):
    """A pod in a session.

    ``job``: the PodGroup's key, empty for pods of no group. ``node``: where it is or was put, empty
    for none. ``is_gated``: it has scheduling gates. ``is_best_effort``: asks for nothing but a
    place. ``request``: amounts of the session's resources, never to be changed in place.
    """

    uid: str
    namespace: str
    name: str
    job: str
    role: str
    request: amounts.Vector
    priority: int
    preemptable: bool
    revocable_zone: str
    is_best_effort: bool
    is_gated: bool
    created: datetime
    status: Status
    node: str
    pod: core.Pod
    task_class: TaskClass
    subjob: str = ""
    eviction_occurred: bool = False
    last_status: Status | None = None
    """The status that a discarded statement had given it."""
    last_node: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class FitError(msgspec.Struct, frozen=True):
    """Why a task found no node: what nodes said (reason -> nodes), or why none was asked.

    ``blocked``: rows on which eviction cannot help either; None stands for all.
    """

    refusals: Mapping[str, int] = {}
    message: str = ""
    unresolvable: frozenset[str] | None = frozenset()

    def __str__(self) -> str:
        if self.message:
            return self.message
        total = sum(self.refusals.values())
        texts = sorted(f"{count} {reason}" for reason, count in self.refusals.items())
        head = f"0/{total} nodes are unavailable"
        return f"{head}: {', '.join(texts)}." if texts else head


class SubJob(msgspec.Struct, eq=False):
    """A group of tasks inside a job with a minimum of its own; every job has at least one."""

    key: str
    min_available: int
    match_index: int = 0
    priority: int = 0
    tasks: dict[str, Task] = {}
    hyper_node: str = ""
    """Where it was placed or nominated, for topology plugins."""


class Job(msgspec.Struct, eq=False):
    """A PodGroup with its tasks.

    ``phase``: as it is now in the session. ``min_resources``: None if unset, and
    ``min_request`` the same as a vector. ``allocated``: the sum
    of what its tasks hold (Allocated, Binding, Bound, Running).
    """

    key: str
    uid: str
    namespace: str
    name: str
    queue: str
    priority: int
    min_available: int
    task_min_available: Mapping[str, int]
    min_resources: units.Amounts | None
    min_request: amounts.Vector | None
    created: datetime
    pod_group: scheduling.PodGroup
    phase: str
    preemptable: bool
    preemptable_is_set: bool
    revocable_zone: str
    waiting_time: str
    """Text of the annotation ``sla-waiting-time``, empty for none."""
    budget_min_available: str
    budget_max_unavailable: str
    allocated: amounts.Vector
    total_request: amounts.Vector
    tasks: dict[str, Task] = {}
    """By uid, in the order of namespace and name."""
    by_status: dict[Status, dict[str, Task]] = {}
    fit_errors: dict[str, FitError] = {}
    """Task uid -> why it found no node."""
    fit_error: str = ""
    """Why none of its tasks was tried."""
    subjobs: dict[str, SubJob] = {}
    conditions: list[scheduling.PodGroupCondition] = []
    is_unschedulable: bool = False
    """Found out in this session; decides the phase that is written at its close."""

    def __contains__(self, task: Task) -> bool:
        return task.uid in self.tasks

    def count(self, *statuses: Status) -> int:
        """How many tasks have one of the statuses."""
        return sum(len(self.by_status.get(status, ())) for status in statuses)

    def with_status(self, *statuses: Status) -> Iterator[Task]:
        """Its tasks of these statuses, in the order of namespace and name."""
        found = [task for status in statuses for task in self.by_status.get(status, {}).values()]
        return iter(sorted(found, key=lambda task: task.key))

    @property
    def pending(self) -> list[Task]:
        """Tasks that wait for a place."""
        return list(self.with_status(Status.PENDING))

    @property
    def ready(self) -> int:
        """Tasks that have their place, or had it and succeeded."""
        return self.count(*READY)

    @property
    def waiting(self) -> int:
        """Tasks with a promise of a place."""
        return self.count(Status.PIPELINED)

    @property
    def pending_best_effort(self) -> int:
        """Pending tasks that ask for nothing: they count as ready."""
        pending = self.by_status.get(Status.PENDING, {}).values()
        return sum(task.is_best_effort for task in pending)

    @property
    def valid(self) -> int:
        """Tasks that run, wait or succeeded."""
        return self.count(*VALID)

    @property
    def is_ready(self) -> bool:
        """Its minimum has places."""
        return self.ready + self.pending_best_effort >= self.min_available

    @property
    def is_pipelined(self) -> bool:
        """Its minimum has places or promises."""
        return self.waiting + self.ready + self.pending_best_effort >= self.min_available

    @property
    def is_starving(self) -> bool:
        """It lacks places for its minimum."""
        return self.waiting + self.ready < self.min_available

    @property
    def is_pending(self) -> bool:
        """It has not passed its queue's door."""
        return self.phase in ("", "Pending")

    @property
    def roles_valid(self) -> bool:
        """Every role has enough valid tasks."""
        return self._roles_reach(lambda task: task.status in VALID)

    @property
    def roles_ready(self) -> bool:
        """Every role has enough tasks with a place."""
        return self._roles_reach(_is_ready)

    @property
    def roles_pipelined(self) -> bool:
        """Every role has enough tasks with a place or a promise."""
        return self._roles_reach(lambda task: task.status is Status.PIPELINED or _is_ready(task))

    @property
    def elastic(self) -> amounts.Vector:
        """What it holds beyond its minimum resources; all of it if it names none."""
        if self.min_request is None:
            return self.allocated
        return amounts.beyond(self.allocated, self.min_request)

    def explain(self) -> str:
        """How far the job is and what keeps it, in the words of its PodGroup's condition."""
        counts = [f"{len(tasks)} {status}" for status, tasks in self.by_status.items() if tasks]
        head = "pod group is ready" if self.is_ready else "pod group is not ready"
        text = f"{head}, {', '.join(sorted([*counts, f'{self.min_available} minAvailable']))}"
        pending = Counter(
            "Schedulable" if task.last_status in ALLOCATED else "Unschedulable"
            for task in self.pending
        )
        if pending:
            reasons = sorted(f"{count} {reason}" for reason, count in pending.items())
            text += f"; Pending: {', '.join(reasons)}"
        if self.fit_error:
            return f"{text}. Origin reason is: {self.fit_error}"
        failed = (
            min((self.tasks[uid].name, uid) for uid in self.fit_errors)
            if (self.fit_errors)
            else None
        )
        if failed:
            return f"{text}. Origin reason is {failed[0]}: {self.fit_errors[failed[1]]}"
        return text

    def move(self, task: Task, status: Status) -> None:
        """The task takes on the status, and the sums follow."""
        before = task.status
        if before is status:
            return
        del self.by_status[before][task.uid]
        self.by_status.setdefault(status, {})[task.uid] = task
        task.status = status
        if before in ALLOCATED and status not in ALLOCATED:
            self.allocated = self.allocated - task.request
        elif status in ALLOCATED and before not in ALLOCATED:
            self.allocated = self.allocated + task.request

    def _roles_reach(self, counts: Callable[[Task], bool]) -> bool:
        """Role minimums bind only where they do not sum to more than the job's own minimum."""
        wanted = self.task_min_available
        if self.min_available < sum(wanted.values()):
            return True
        found = Counter(task.role for task in self.tasks.values() if counts(task))
        return all(found[role] >= minimum for role, minimum in wanted.items())


def _is_ready(task: Task) -> bool:
    return task.status in READY or (task.status is Status.PENDING and task.is_best_effort)


class Queue(msgspec.Struct, eq=False):
    """A queue. Amounts by name, so that an absent name is told from zero."""

    name: str
    weight: int
    priority: int
    parent: str
    state: str
    reclaimable: bool
    capability: units.Amounts
    deserved: units.Amounts
    guarantee: units.Amounts
    hierarchy: str
    hierarchy_weights: str
    created: datetime
    object: scheduling.Queue

    @property
    def uid(self) -> str:
        """Queues are known by name."""
        return self.name

    @property
    def is_open(self) -> bool:
        """It takes new jobs; a state that is not written yet reads as Open."""
        return self.state in ("", "Open")
