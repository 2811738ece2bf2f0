"""The data types of a session: queues, jobs, tasks and their classes.

A job is a PodGroup with its pods; a task is a pod. Only statements change the status and node of a
task in a session, and they keep the sums of its job up to date.
"""

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

import msgspec

from stromboli.scheduler.core.model import requirements, resource_vectors
from stromboli.shared.api import core, scheduling
from stromboli.shared.formats import units
from stromboli.shared.jobspec.data_sets import DataSetRequest


class Status(enum.StrEnum):
    """The state of a task. The values appear in conditions."""

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

    __hash__ = str.__hash__
    """Hashes of ``enum`` are computed in Python, and jobs count tasks by status all the time."""


ALLOCATED = frozenset({Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING})
READY = ALLOCATED | {Status.SUCCEEDED}
VALID = READY | {Status.PIPELINED, Status.PENDING}
PREEMPTABLE = frozenset({Status.BOUND, Status.RUNNING})
SCHEDULED = frozenset({Status.RUNNING, Status.BOUND, Status.SUCCEEDED, Status.FAILED})
COMPLETED = frozenset({Status.SUCCEEDED, Status.FAILED})
ON_NODE = ALLOCATED | {Status.PIPELINED, Status.RELEASING, Status.UNKNOWN}


Port = tuple[str, int, str]
"""(protocol, number, address) of a host port."""


class TaskClass(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """The fields that equal tasks share; interned and compared by identity.

    Predicates and scores are computed once per class and read pods only through these fields; other
    fields of pods never split a class. ``labels``: the labels by which the affinity or spread of
    some pod selects. ``ports``: host ports. ``images``: by the names that nodes list, one per
    container. ``claims``: names of PersistentVolumeClaims. ``has_own_claims``: the pod has
    ephemeral volumes, for which claims are created. ``data_sets``: the data sets that caches on
    nodes hold. ``data_problem``: why the data sets cannot be read; empty if they can.
    """

    number: int
    shape: requirements.PodRequirements
    namespace: str
    labels: Mapping[str, str]
    affinity: core.Affinity | None
    spread: tuple[core.TopologySpreadConstraint, ...]
    ports: tuple[Port, ...]
    images: tuple[str, ...]
    claims: tuple[str, ...]
    has_own_claims: bool
    data_sets: tuple[DataSetRequest, ...] = ()
    data_problem: str = ""


_EMPTY: Any = MappingProxyType({})


def rarely_used() -> Any:
    """The default of a dict that is empty in most jobs: one object for all, which takes no memory
    and refuses changes. A writer replaces it by a dict of its own."""
    return msgspec.field(default_factory=lambda: _EMPTY)


class Task(msgspec.Struct, eq=False):
    """A pod in a session.

    ``job``: key of the PodGroup, empty for a pod without one. ``node``: where the task runs or is
    placed, empty for none. ``is_gated``: it has scheduling gates. ``is_best_effort``: it requests
    nothing. ``request``: amounts by column as 64-bit integers; ``request_sum``: the same as
    unbounded integers, for sums. Neither may be changed in place.
    """

    uid: str
    namespace: str
    name: str
    job: str
    role: str
    request: resource_vectors.Vector
    request_sum: resource_vectors.Sum
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
    key: str = ""
    """``namespace/name``."""
    index: int | None = None
    """The number at the end of a name with three or more parts."""
    subjob: str = ""
    eviction_occurred: bool = False
    last_status: Status | None = None
    """The status that a discarded statement gave it."""
    last_node: str = ""


class FitError(msgspec.Struct, frozen=True):
    """Why a task fits on no node: ``refusals`` (reason -> number of nodes), or ``message`` if no
    node was checked.
    """

    refusals: Mapping[str, int] = {}
    message: str = ""
    is_share: bool = False
    """The queue's quota refuses the task although a node has room."""

    def __str__(self) -> str:
        if self.message:
            return self.message
        total = sum(self.refusals.values())
        texts = sorted(f"{count} {reason}" for reason, count in self.refusals.items())
        head = f"0/{total} nodes are unavailable"
        return f"{head}: {', '.join(texts)}." if texts else head


class SubJob(msgspec.Struct, eq=False):
    """A subgroup of a job's tasks with its own minimum. Every job has at least one."""

    key: str
    min_available: int
    match_index: int = 0
    priority: int = 0
    tasks: dict[str, Task] = {}
    policy: str = ""
    """The subgroup policy that it belongs to; empty for the whole job and for tasks that match no
    policy.
    """
    hyper_node: str = ""
    """The HyperNode where it is placed or nominated, for topology plugins."""


class Job(msgspec.Struct, eq=False):
    """A PodGroup with its tasks.

    ``phase``: the current phase in the session. ``min_request``: its ``minResources`` as a vector,
    None if unset. ``allocated``: the sum of its tasks that are Allocated, Binding, Bound or
    Running.
    """

    key: str
    uid: str
    namespace: str
    name: str
    queue: str
    priority: int
    min_available: int
    task_min_available: Mapping[str, int]
    min_request: resource_vectors.Vector | None
    created: datetime
    pod_group: scheduling.PodGroup
    phase: str
    preemptable: bool
    preemptable_is_set: bool
    revocable_zone: str
    waiting_time: str
    """The annotation ``sla-waiting-time``, empty if absent."""
    budget_min_available: str
    budget_max_unavailable: str
    allocated: resource_vectors.Sum
    total_request: resource_vectors.Sum
    tasks: dict[str, Task] = {}
    """By uid, unordered."""
    by_status: dict[Status, dict[str, Task]] = {}
    role_counts: dict[str, dict[Status, int]] = rarely_used()
    """Role -> number of tasks by status; empty without minimums of roles. Maintained by
    ``add_counts``."""
    best_effort: dict[str, int] = rarely_used()
    """Role -> number of pending tasks that request nothing."""
    fit_errors: dict[str, FitError] = rarely_used()
    """Task uid -> why it fits on no node."""
    fit_error: str = ""
    """Why none of its tasks was tried."""
    topology_error: str = ""
    """Why no topology domain can hold the job, if that keeps it pending."""
    is_refused_by_queue: bool = False
    """A task could not be tried because the queue's quota is exhausted."""
    start_estimate_text: str = ""
    """The estimated start, for explanations; empty if unknown."""
    subjobs: dict[str, SubJob] = {}
    sub_group_minimums: Mapping[str, int] = {}
    """Subgroup policy -> number of its subgroups that must be complete; empty without policies."""
    conditions: list[scheduling.PodGroupCondition] = []
    gated: dict[str, Task] = rarely_used()
    """Tasks with scheduling gates, by uid."""
    problems: dict[str, str] = rarely_used()
    """Pod -> what is invalid about it. Such a pod is no task."""
    frozen: str = ""
    """Why sessions neither schedule the job nor evict its tasks; empty if it is not frozen.
    """
    is_terminating: bool = False
    """Whether the PodGroup is being deleted; sessions no longer schedule the job."""
    is_backing_off: bool = False
    """Whether the session skips the job, because its last decisions were refused or because its
    plan has not been read yet."""
    is_unschedulable: bool = False
    """Set during the session; determines the phase that is written when it closes."""

    def __contains__(self, task: Task) -> bool:
        return task.uid in self.tasks

    def count(self, *statuses: Status) -> int:
        """Number of tasks in any of the statuses."""
        return self.count_in(statuses)

    def count_in(self, statuses: Collection[Status]) -> int:
        """Number of tasks in any status of a set."""
        # A job has tasks in one to three statuses, and callers ask for five to seven. A session
        # counts 50 times for each waiting job; a loop takes a third of the time of a sum.
        number = 0
        for status, tasks in self.by_status.items():
            if status in statuses:
                number += len(tasks)
        return number

    def with_status(self, *statuses: Status) -> Iterator[Task]:
        """Tasks in any of the statuses, ordered by namespace and name."""
        tasks = [task for status in statuses for task in self.by_status.get(status, {}).values()]
        return iter(sorted(tasks, key=lambda task: task.key))

    @property
    def pending(self) -> list[Task]:
        """Pending tasks, ordered by namespace and name."""
        return list(self.with_status(Status.PENDING))

    @property
    def unplaced(self) -> Collection[Task]:
        """Pending tasks, unordered; O(1)."""
        return self.by_status.get(Status.PENDING, {}).values()

    @property
    def ready(self) -> int:
        """Number of tasks that are placed or have succeeded."""
        return self.count_in(READY)

    @property
    def waiting(self) -> int:
        """Number of nominated tasks."""
        return self.count(Status.PIPELINED)

    @property
    def pending_best_effort(self) -> int:
        """Number of pending tasks that request nothing; they count as ready."""
        return sum(self.best_effort.values())

    @property
    def valid(self) -> int:
        """Number of tasks that are pending, placed, nominated or succeeded."""
        return self.count_in(VALID)

    @property
    def is_ready(self) -> bool:
        """Whether the minimum number of tasks is placed."""
        return self.ready + self.pending_best_effort >= self.min_available

    @property
    def is_pipelined(self) -> bool:
        """Whether the minimum number of tasks is placed or nominated."""
        return self.waiting + self.ready + self.pending_best_effort >= self.min_available

    @property
    def is_starving(self) -> bool:
        """Whether fewer tasks than the minimum are placed or nominated."""
        return self.waiting + self.ready < self.min_available

    @property
    def is_decidable(self) -> bool:
        """Whether all of the job is readable, and it is neither being deleted nor backing off."""
        return not (self.frozen or self.is_terminating or self.is_backing_off)

    def name_for(self, namespace: str) -> str:
        """The name of the job in reasons that users of a namespace read: its key, except for users
        of other namespaces, who might not be allowed to list it."""
        return self.key if namespace == self.namespace else "a job in another namespace"

    @property
    def is_pending(self) -> bool:
        """Whether the job is still in phase Pending, so not yet Inqueue."""
        return self.phase in ("", "Pending")

    @property
    def roles_valid(self) -> bool:
        """Whether every role has enough valid tasks."""
        return all(self.role_count(role, VALID) >= least for role, least in self.role_minimums)

    @property
    def roles_ready(self) -> bool:
        """Whether every role has enough placed tasks."""
        return all(self.role_deficit(role) <= 0 for role, _ in self.role_minimums)

    @property
    def roles_pipelined(self) -> bool:
        """Whether every role has enough placed or nominated tasks."""
        return all(
            self.role_count(role, {Status.PIPELINED}) >= self.role_deficit(role)
            for role, _ in self.role_minimums
        )

    @property
    def role_minimums(self) -> Collection[tuple[str, int]]:
        """Minimum tasks by role; empty if they sum to more than the job's minimum, because then
        they do not apply.
        """
        wanted = self.task_min_available
        return wanted.items() if self.min_available >= sum(wanted.values()) else ()

    def most_needed_first(self, tasks: Iterable[Task]) -> list[Task]:
        """The tasks, those of roles below their minimum first, otherwise in the given order.

        Without these roles the job does not start, however many other tasks are placed.
        """
        lacking = {
            role: self.role_deficit(role) - self.role_count(role, (Status.PIPELINED,))
            for role, _ in self.role_minimums
        }
        if not lacking:
            return list(tasks)
        needed: list[Task] = []
        others: list[Task] = []
        for task in tasks:
            is_needed = lacking.get(task.role, 0) > 0
            (needed if is_needed else others).append(task)
            if is_needed:
                lacking[task.role] -= 1
        return [*needed, *others]

    def role_deficit(self, role: str) -> int:
        """How many placed tasks the role lacks to reach its minimum."""
        has = self.role_count(role, READY) + self.best_effort.get(role, 0)
        return self.task_min_available.get(role, 0) - has

    def role_count(self, role: str, statuses: Collection[Status]) -> int:
        """Number of the role's tasks in any of the statuses."""
        counts = self.role_counts.get(role)
        if counts is None:
            return 0
        number = 0
        for status, count in counts.items():
            if status in statuses:
                number += count
        return number

    @property
    def elastic(self) -> resource_vectors.Sum:
        """What the job holds beyond its minimum resources; everything if it has no minimum
        resources.
        """
        if self.min_request is None:
            return self.allocated
        return resource_vectors.excess(self.allocated, self.min_request)

    def explain(self) -> str:
        """How many tasks are in each state and what keeps the job pending, in the wording of the
        PodGroup's condition.
        """
        counts = [f"{len(tasks)} {status}" for status, tasks in self.by_status.items() if tasks]
        head = "pod group is ready" if self.is_ready else "pod group is not ready"
        text = f"{head}, {', '.join(sorted([*counts, f'{self.min_available} minAvailable']))}"
        if self.start_estimate_text:
            text += f"; {self.start_estimate_text}"
        pending = Counter(
            "Schedulable" if task.last_status in ALLOCATED else "Unschedulable"
            for task in self.pending
        )
        if pending:
            reasons = sorted(f"{count} {reason}" for reason, count in pending.items())
            text += f"; Pending: {', '.join(reasons)}"
        if self.fit_error or self.topology_error:
            return f"{text}. Origin reason is: {self.fit_error or self.topology_error}"
        failed = (
            min((self.tasks[uid].name, uid) for uid in self.fit_errors)
            if (self.fit_errors)
            else None
        )
        if failed:
            return f"{text}. Origin reason is {failed[0]}: {self.fit_errors[failed[1]]}"
        return text

    def move(self, tasks: Sequence[Task], status: Status) -> None:
        """Update the sums before tasks of one class, role and status change to another status."""
        before = tasks[0].status
        if before is status:
            return
        leaves, enters = self.by_status[before], self.by_status.get(status)
        if len(tasks) == len(leaves):
            del self.by_status[before]
            moved = leaves
        else:
            moved = {task.uid: task for task in tasks}
            for uid in moved:
                del leaves[uid]
        if enters is None:
            self.by_status[status] = moved
        else:
            enters.update(moved)
        self.add_counts(tasks[0], before, -len(tasks))
        self.add_counts(tasks[0], status, len(tasks))
        if before in ALLOCATED and status not in ALLOCATED:
            self.allocated = self.allocated - tasks[0].request_sum * len(tasks)
        elif status in ALLOCATED and before not in ALLOCATED:
            self.allocated = self.allocated + tasks[0].request_sum * len(tasks)

    def add_counts(self, like: Task, status: Status, number: int) -> None:
        """Add ``number`` tasks like this one, in the given status, to the counts; a negative number
        subtracts."""
        if self.task_min_available:
            self.role_counts = self.role_counts or {}
            counts = self.role_counts.setdefault(like.role, {})
            counts[status] = counts.get(status, 0) + number
        if status is Status.PENDING and like.is_best_effort:
            self.best_effort = self.best_effort or {}
            self.best_effort[like.role] = self.best_effort.get(like.role, 0) + number

    def reject(self, pod: str, problem: str) -> None:
        """Note what is invalid about a pod of the job."""
        self.problems = self.problems or {}
        self.problems[pod] = problem

    def accept(self, pod: str) -> None:
        """Undo ``reject``, if it was called."""
        if pod in self.problems:
            del self.problems[pod]

    def refuse(self, tasks: Iterable[Task], error: FitError) -> None:
        """Note why these tasks fit on no node."""
        self.fit_errors = self.fit_errors or {}
        self.fit_errors.update((task.uid, error) for task in tasks)


class Queue(msgspec.Struct, eq=False):
    """A queue. Amounts are by name, so that an absent name differs from zero."""

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
    limits: tuple[int, Any] = (-1, None)
    """The model's epoch, and the limits by column that quotas derived in that epoch."""

    @property
    def uid(self) -> str:
        """The queue's name, which identifies it."""
        return self.name

    @property
    def is_open(self) -> bool:
        """Whether it accepts jobs; a queue without a state counts as Open."""
        return self.state in ("", "Open")
