"""What a session works on: queues, jobs and their tasks, as spec/scheduling 1 has them.

A job is a PodGroup with its pods, a task is a pod. A session owns its model: only statements
change statuses and places, and they keep the sums here right.
"""

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from stromboli.scheduler.core.model import requirements, resource_vectors
from stromboli.shared.api import core, scheduling
from stromboli.shared.formats import units


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


Port = tuple[str, int, str]
"""Protocol, number, address of a node's port."""


class TaskClass(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """What equal tasks have in common; interned, compared by identity.

    Predicates and scores answer once per class, and read pods through these fields only: what is
    not here splits no class. ``labels`` are those that some pod's affinity or spread selects by, so
    that an index label does not make every task its own class. ``ports``: of the node, that a pod
    takes. ``images``: as nodes list them, one for each container. ``claims``: names of
    PersistentVolumeClaims; ``has_own_claims``: others are made for each pod.
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


class Task(msgspec.Struct, eq=False):
    """A pod in a session.

    ``job``: the PodGroup's key, empty for pods of no group. ``node``: where it is or was put, empty
    for none. ``is_gated``: it has scheduling gates. ``is_best_effort``: asks for nothing but a
    place. ``request``: amounts of the session's resources; ``summand``: the same, to be summed up.
    Neither is ever to be changed in place.
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
    index: int | None = None
    """The number that ends its name, if that has three parts or more."""
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
    """Why a task found no node: what nodes said (reason -> nodes), or why none was asked."""

    refusals: Mapping[str, int] = {}
    message: str = ""
    is_share: bool = False
    """Its queue may not hold the task now, though a node would."""

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
    policy: str = ""
    """The policy that made it; empty for the job as a whole, and for what no policy means."""
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
    min_request: resource_vectors.Vector | None
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
    allocated: resource_vectors.Sum
    total_request: resource_vectors.Sum
    tasks: dict[str, Task] = {}
    """By uid, in any order."""
    by_status: dict[Status, dict[str, Task]] = {}
    role_counts: dict[str, dict[Status, int]] = {}
    """Role -> tasks by status, and below ``best_effort`` how many of the pending ask for nothing.
    Kept by ``tally``."""
    best_effort: dict[str, int] = {}
    fit_errors: dict[str, FitError] = {}
    """Task uid -> why it found no node."""
    fit_error: str = ""
    """Why none of its tasks was tried."""
    topology_error: str = ""
    """Why no part of the network takes it, if that is what keeps it."""
    is_refused_by_queue: bool = False
    """Some task could not be tried since its queue's limits have no room for it."""
    start_estimate_text: str = ""
    """When it is to start, as far as that is known."""
    subjobs: dict[str, SubJob] = {}
    sub_group_minimums: Mapping[str, int] = {}
    """Policy that divides the job -> how many of its groups must be whole; empty if none does."""
    conditions: list[scheduling.PodGroupCondition] = []
    gated: dict[str, Task] = {}
    """Its tasks with scheduling gates."""
    problems: dict[str, str] = {}
    """Pod -> what of it makes no sense: such a pod is no task."""
    frozen: str = ""
    """What of it cannot be read: nothing is decided about it, and none of its tasks is evicted."""
    is_going: bool = False
    """The PodGroup is being deleted: nothing more is decided for it."""
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
    def unplaced(self) -> Collection[Task]:
        """The same in any order, at once."""
        return self.by_status.get(Status.PENDING, {}).values()

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
        return sum(self.best_effort.values())

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
    def is_decidable(self) -> bool:
        """All of it can be read, and it is there to stay."""
        return not (self.frozen or self.is_going)

    @property
    def is_pending(self) -> bool:
        """It has not passed its queue's door."""
        return self.phase in ("", "Pending")

    @property
    def roles_valid(self) -> bool:
        """Every role has enough valid tasks."""
        return all(self.role_count(role, VALID) >= least for role, least in self.role_minimums)

    @property
    def roles_ready(self) -> bool:
        """Every role has enough tasks with a place."""
        return all(self.role_deficit(role) <= 0 for role, _ in self.role_minimums)

    @property
    def roles_pipelined(self) -> bool:
        """Every role has enough tasks with a place or a promise."""
        return all(
            self.role_count(role, {Status.PIPELINED}) >= self.role_deficit(role)
            for role, _ in self.role_minimums
        )

    @property
    def role_minimums(self) -> Collection[tuple[str, int]]:
        """Roles with their minimums: they bind only where they do not sum to more than the job's
        own minimum."""
        wanted = self.task_min_available
        return wanted.items() if self.min_available >= sum(wanted.values()) else ()

    def most_needed_first(self, tasks: Iterable[Task]) -> list[Task]:
        """Tasks of roles that lack their minimum before all others, else in the order given.

        Without them the job does not start, however many others have room."""
        lacking = {
            role: self.role_deficit(role) - self.role_count(role, (Status.PIPELINED,))
            for role, _ in self.role_minimums
        }
        needed: list[Task] = []
        others: list[Task] = []
        for task in tasks:
            is_needed = lacking.get(task.role, 0) > 0
            (needed if is_needed else others).append(task)
            if is_needed:
                lacking[task.role] -= 1
        return [*needed, *others]

    def role_deficit(self, role: str) -> int:
        """How many tasks the role lacks to be ready."""
        has = self.role_count(role, READY) + self.best_effort.get(role, 0)
        return self.task_min_available.get(role, 0) - has

    def role_count(self, role: str, statuses: Collection[Status]) -> int:
        """How many tasks of the role have one of the statuses."""
        found = self.role_counts.get(role, {})
        return sum(found.get(status, 0) for status in statuses)

    @property
    def elastic(self) -> resource_vectors.Sum:
        """What it holds beyond its minimum resources; all of it if it names none."""
        if self.min_request is None:
            return self.allocated
        return resource_vectors.excess(self.allocated, self.min_request)

    def explain(self) -> str:
        """How far the job is and what keeps it, in the words of its PodGroup's condition."""
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
        """Tasks of one class, role and status are about to take on another; the sums follow."""
        before = tasks[0].status
        if before is status:
            return
        leaves, enters = self.by_status[before], self.by_status.setdefault(status, {})
        for task in tasks:
            del leaves[task.uid]
            enters[task.uid] = task
        self.tally(tasks[0], before, -len(tasks))
        self.tally(tasks[0], status, len(tasks))
        if before in ALLOCATED and status not in ALLOCATED:
            self.allocated = self.allocated - tasks[0].request_sum * len(tasks)
        elif status in ALLOCATED and before not in ALLOCATED:
            self.allocated = self.allocated + tasks[0].request_sum * len(tasks)

    def tally(self, like: Task, status: Status, number: int) -> None:
        """Count so many tasks like this one in, or out if negative, as of this status."""
        counts = self.role_counts.setdefault(like.role, {})
        counts[status] = counts.get(status, 0) + number
        if status is Status.PENDING and like.is_best_effort:
            self.best_effort[like.role] = self.best_effort.get(like.role, 0) + number


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
