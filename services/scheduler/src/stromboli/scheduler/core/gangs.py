"""Gangs and their tasks: who is a member, what state it is in, and when a gang counts as whole.

Words and formulas are those of spec/scheduling 1.2 and 1.3: a task is *ready* once it is bound or
decided to be, *valid* unless it failed or is going away.
"""

import enum
import types
from collections.abc import Container, Mapping
from datetime import UTC, datetime

import msgspec

from stromboli.scheduler.core import shapes
from stromboli.shared import keys, snapshot, units
from stromboli.shared.api import core, scheduling

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
NO_INDEX = 2**31
"""Index of a task that has none: after all that have one."""


class Status(enum.StrEnum):
    """A task's state, in the words that users read in conditions."""

    PENDING = "Pending"
    BINDING = "Binding"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


ALLOCATED = frozenset({Status.BINDING, Status.BOUND, Status.RUNNING})
READY = ALLOCATED | {Status.SUCCEEDED}
VALID = READY | {Status.PENDING}


class Task(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A pod of ours as scheduling sees it. ``shape`` None: ``problem`` says which amount is bad."""

    key: str
    uid: str
    namespace: str
    name: str
    group: str
    role: str
    index: int
    priority: int
    created: datetime
    status: Status
    node: str
    is_gated: bool
    shape: shapes.Shape | None
    problem: str

    @property
    def order(self) -> tuple[int, int, datetime, str]:
        """Sorts the tasks of a gang: priority, then index, then age."""
        return (-self.priority, self.index, self.created, self.uid)

    @property
    def is_placeable(self) -> bool:
        """It waits for nothing but a node."""
        return self.status is Status.PENDING and not self.is_gated and self.shape is not None


def group_of(pod: core.Pod) -> str:
    """Key of the pod's PodGroup; empty if it names none."""
    name = pod.metadata.annotation(keys.GROUP_NAME)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def task(pod: core.Pod, assumed_node: str, shape: shapes.Shape | None, problem: str) -> Task:
    """The task of a pod. ``assumed_node``: where a decision puts it that nothing refused yet."""
    metadata, spec = pod.metadata, pod.spec
    role = metadata.annotation(keys.TASK_SPEC) or metadata.label(keys.TASK_SPEC) or ""
    return Task(
        key=metadata.key,
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        group=group_of(pod),
        role=role,
        index=_index(metadata.annotation(keys.TASK_INDEX) or metadata.label(keys.TASK_INDEX), pod),
        priority=_priority(pod),
        created=metadata.creation_timestamp or _LONG_AGO,
        status=_status(pod, assumed_node),
        node=spec.node_name or assumed_node,
        is_gated=bool(spec.scheduling_gates),
        shape=shape,
        problem=problem,
    )


class Gang:
    """A PodGroup and its tasks by pod key. Taking in a task costs O(resources).

    ``taken``: the requests of tasks that have a place; ``gated``: of those that must not have one.
    """

    __slots__ = (
        "_counts",
        "gated",
        "key",
        "pending",
        "pod_group",
        "taken",
        "tasks",
        "unknown_pods",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.pod_group: scheduling.PodGroup | snapshot.Unknown | None = None
        self.tasks: dict[str, Task] = {}
        self.pending: dict[str, Task] = {}
        self.unknown_pods: set[str] = set()
        self.taken: units.Amounts = {}
        self.gated: units.Amounts = {}
        self._counts: dict[tuple[str, Status], int] = {}

    def put(self, member: Task) -> None:
        """A task as it is now."""
        self.drop(member.key)
        self.tasks[member.key] = member
        kind = (member.role, member.status)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if member.status is Status.PENDING:
            self.pending[member.key] = member
        self._sum(member, 1)

    def drop(self, key: str) -> None:
        """No longer a member."""
        before = self.tasks.pop(key, None)
        if before is not None:
            self._counts[before.role, before.status] -= 1
            self.pending.pop(key, None)
            self._sum(before, -1)

    @property
    def is_empty(self) -> bool:
        """Nothing is known of it any more."""
        return self.pod_group is None and not self.tasks and not self.unknown_pods

    @property
    def ready(self) -> int:
        """Tasks that have their place."""
        return self.count(READY)

    def count(self, statuses: Container[Status], role: str | None = None) -> int:
        """How many tasks, of a role or of all, are in one of these states. O(roles)."""
        return sum(
            number
            for (own_role, status), number in self._counts.items()
            if status in statuses and role in (None, own_role)
        )

    def statuses(self) -> dict[str, int]:
        """State -> number of tasks, without zeros."""
        counts: dict[str, int] = {}
        for (_, status), number in self._counts.items():
            if number:
                counts[status] = counts.get(status, 0) + number
        return counts

    def _sum(self, member: Task, sign: int) -> None:
        if member.shape is None:
            return
        if member.status in ALLOCATED:
            self.taken = units.add(self.taken, units.times(sign, member.shape.request))
        elif member.status is Status.PENDING and member.is_gated:
            self.gated = units.add(self.gated, units.times(sign, member.shape.request))


def invalidity(gang: Gang, group: scheduling.PodGroup) -> str:
    """Why the gang cannot be whole with the pods there are; empty if it can."""
    if not _roles_reach(gang, group, VALID, {}):
        return "Not enough valid pods of each task for gang-scheduling"
    valid, wanted = gang.count(VALID), group.spec.min_member
    if valid < wanted:
        return f"Not enough valid tasks for gang-scheduling, valid: {valid}, min: {wanted}"
    return ""


def is_ready(
    gang: Gang, group: scheduling.PodGroup, placed: Mapping[str, int] = types.MappingProxyType({})
) -> bool:
    """Whether the gang is whole, with ``placed`` further tasks (role -> number) in their place."""
    if gang.ready + sum(placed.values()) < group.spec.min_member:
        return False
    return _roles_reach(gang, group, READY, placed)


def _roles_reach(
    gang: Gang,
    group: scheduling.PodGroup,
    statuses: Container[Status],
    placed: Mapping[str, int],
) -> bool:
    """Roles count only if minMember covers all their minimums, as Volcano has it."""
    minimums = group.spec.min_task_member or {}
    if not minimums or group.spec.min_member < sum(minimums.values()):
        return True
    return all(
        gang.count(statuses, role) + placed.get(role, 0) >= minimum
        for role, minimum in minimums.items()
    )


def _index(text: str | None, pod: core.Pod) -> int:
    """The task's index, else the trailing number of a pod name of three parts or more."""
    if text is None and pod.metadata.name.count("-") >= 2:
        text = pod.metadata.name.rpartition("-")[2]
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else NO_INDEX


def _priority(pod: core.Pod) -> int:
    text = pod.metadata.annotation(keys.TASK_PRIORITY) or ""
    if text.removeprefix("-").isdecimal():
        return int(text)
    return 1 if pod.spec.priority is None else pod.spec.priority


def _status(pod: core.Pod, assumed_node: str) -> Status:
    is_going = pod.metadata.deletion_timestamp is not None
    match pod.status.phase:
        case "Running":
            return Status.RELEASING if is_going else Status.RUNNING
        case "Pending" | "":
            if is_going:
                return Status.RELEASING
            if pod.spec.node_name:
                return Status.BOUND
            return Status.BINDING if assumed_node else Status.PENDING
        case "Succeeded":
            return Status.SUCCEEDED
        case "Failed":
            return Status.FAILED
        case _:
            return Status.UNKNOWN
