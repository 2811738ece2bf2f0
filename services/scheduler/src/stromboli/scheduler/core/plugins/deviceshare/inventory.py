"""The GPUs of a session's nodes, and the tasks that use them.

The inventory is read from nodes and pods when the first task needs it. The result for a node is
cached for later sessions until the node or one of its pods changes. Within the session it follows
placements and rollbacks: a discarded trial restores every GPU, and a task whose eviction is undone
has its GPUs again.
"""

import operator
from collections import Counter
from collections.abc import Callable, Hashable

import msgspec

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, requirements
from stromboli.scheduler.core.plugins.deviceshare import gpu_annotations, gpu_devices
from stromboli.shared.api import core

NAME = "deviceshare"
Choose = Callable[
    [int, list[gpu_devices.Gpu], gpu_devices.GpuRequest, gpu_devices.Owner, int, entities.Task],
    "NodeAllocation | None",
]
"""(row, GPUs to be changed, request, owner, number of equal tasks placed before, task) ->
allocation. The number of tasks may be negative, as ``before`` in ``fragmentation``."""


_AllocationKey = tuple[int, tuple[int, int], gpu_devices.GpuRequest, str, int, tuple[int, ...]]
"""State of a node's GPUs, row with its version if the identity of GPUs matters, request, job, tasks
before, other relevant facts of the node."""


class NodeAllocation(msgspec.Struct, frozen=True):
    """The GPUs for a task on a node, and the score."""

    allocation: gpu_devices.PodAllocation
    link_score: float


class _TaskAllocation(msgspec.Struct, frozen=True):
    row: int
    allocation: gpu_devices.PodAllocation


class _NodeGpus(msgspec.Struct, frozen=True, eq=False):
    """The state of a node as read from it and its pods: GPUs with their users, and task ->
    allocation. ``problem``: what cannot be read."""

    node: core.Node
    pods: list[core.Pod]
    owned: list[gpu_devices.Gpu]
    held: dict[str, gpu_devices.PodAllocation]
    problem: str
    state: tuple[Hashable, ...]


class GpuInventory:
    """GPUs by row of the session's nodes."""

    def __init__(
        self,
        ssn: session.Session,
        annotation_format: gpu_annotations.AnnotationFormat,
        choose: Choose,
        *,
        by_room: bool,
        by_identity: bool = False,
        version: object = None,
    ) -> None:
        """``by_room``: choices depend on idle cpu and memory of the node too. ``by_identity``: they
        depend on the identity of GPUs. ``version``: of the parser settings; what was read with
        others is not reused."""
        self._by_room = by_room
        self._by_identity = by_identity
        self._session = ssn
        self._dialect = annotation_format
        self._choose = choose
        self._requests: dict[str, gpu_devices.GpuRequest | None] = {}
        self.gpus: dict[int, list[gpu_devices.Gpu]] = {}
        self.problems: dict[int, str] = {}
        """Row -> why its GPUs cannot be read; no GPUs are allocated there."""
        self._held: dict[str, _TaskAllocation] = {}
        self._first: dict[str, _TaskAllocation] = {}
        """Allocations at the start of the session."""
        self.given_here: dict[int, set[str]] = {}
        """Row -> tasks that got an allocation in this session."""
        self._answers: dict[_AllocationKey, NodeAllocation | None] = {}
        self._states: dict[int, int] = {}
        """Row -> number of the state of its GPUs; absent after a change."""
        self._state_numbers: dict[object, int] = {}
        self._versions: Counter[int] = Counter()
        """Row -> number of changes of its GPUs."""
        self._own: set[int] = set()
        """Rows whose GPUs are copies of this session, not the cached ones."""
        kept = ssn.model.auxiliary.cached(NAME, (version,), dict[str, _NodeGpus])
        for row, name in enumerate(ssn.nodes.names):
            node_gpus = self._node_gpus(row, kept.get(name))
            kept[name] = node_gpus
            if node_gpus.problem:
                self.problems[row] = node_gpus.problem
            if node_gpus.owned:
                self.gpus[row] = node_gpus.owned
                self._states[row] = self._number(node_gpus.state)
                for uid, allocation in node_gpus.held.items():
                    self._held[uid] = _TaskAllocation(row, allocation)
        for name in set(kept) - set(ssn.nodes.rows):
            del kept[name]
        self._first = dict(self._held)
        self.reported_problems = [
            f"GPUs of node {ssn.nodes.names[row]}: {why}"
            for row, why in sorted(self.problems.items())
        ]

    def _node_gpus(self, row: int, before: _NodeGpus | None) -> _NodeGpus:
        """Read a node, or reuse what was read from the same objects."""
        node = self._session.nodes.objects[row]
        tasks = list(self._session.nodes.tasks[row].values())
        pods = [task.pod for task in tasks]
        is_known = (
            before is not None
            and before.node is node
            and len(before.pods) == len(pods)
            and all(map(operator.is_, before.pods, pods))
        )
        return before if before is not None and is_known else self._read(node, pods, tasks)

    def _read(self, node: core.Node, pods: list[core.Pod], tasks: list[entities.Task]) -> _NodeGpus:
        problem, gpus = "", list[gpu_devices.Gpu]()
        gpu_allocations: dict[str, gpu_devices.PodAllocation] = {}
        try:
            gpus = self._dialect.gpus_of(node)
        except ValueError as error:
            problem = str(error)
        for task in tasks if gpus else ():
            try:
                gpu_request = self._dialect.request_of(task.pod)
                allocation = self._dialect.allocation_of(task.pod) if gpu_request else None
            except ValueError as error:
                problem = f"pod {task.key}: {error}"
                continue
            if gpu_request is not None and allocation is not None:
                _put(gpus, gpu_devices.Owner(task.uid, task.job, gpu_request.rules), allocation)
                gpu_allocations[task.uid] = allocation
        return _NodeGpus(
            node, pods, gpus, gpu_allocations, problem, tuple(gpu.state for gpu in gpus)
        )

    def request_of(self, task: entities.Task) -> gpu_devices.GpuRequest | None:
        """Return the task's GPU request; None if it has none. Raises ValueError."""
        if task.uid not in self._requests:
            self._requests[task.uid] = self._dialect.request_of(task.pod)
        return self._requests[task.uid]

    def answer(self, task: entities.Task, row: int, before: int) -> NodeAllocation | None:
        """Return the GPUs that such a task would get on the node after ``before`` equal tasks; None
        if there are too few. The GPUs in the answer may be those of another node with the same
        state.

        Nodes with the same state share one answer, which covers most of a large cluster.
        """
        gpu_request = self.request_of(task)
        if gpu_request is None or row not in self.gpus or row in self.problems:
            return None
        is_choosy = self._by_identity or bool(
            gpu_request.ids or gpu_request.not_ids or gpu_request.exclusive_job or gpu_request.rules
        )
        idle = self._session.nodes.idle[: requirements.PODS, row].tolist() if self._by_room else ()
        key = (
            self._state(row),
            (row, self._versions[row]) if is_choosy else (-1, 0),
            gpu_request,
            task.job if gpu_request.exclusive_job else "",
            before,
            tuple(idle),
        )
        if key not in self._answers:
            trial = gpu_devices.copied(self.gpus[row])
            allocation = None
            for earlier in range(before + 1):
                allocation = self._try_allocation(
                    task, row, trial, earlier, f"{task.uid}+{earlier}"
                )
                if allocation is None:
                    break
            self._answers[key] = allocation
        return self._answers[key]

    def _state(self, row: int) -> int:
        number = self._states.get(row)
        if number is None:
            number = self._number(tuple(gpu.state for gpu in self.gpus[row]))
            self._states[row] = number
        return number

    def _number(self, state: tuple[Hashable, ...]) -> int:
        return self._state_numbers.setdefault(state, len(self._state_numbers))

    def _own_gpus(self, row: int) -> list[gpu_devices.Gpu]:
        """Return the row's GPUs as copies that may be changed."""
        if row not in self._own:
            self._own.add(row)
            self.gpus[row] = gpu_devices.copied(self.gpus[row])
        return self.gpus[row]

    def _try_allocation(
        self, task: entities.Task, row: int, trial: list[gpu_devices.Gpu], before: int, uid: str
    ) -> NodeAllocation | None:
        gpu_request = self.request_of(task)
        if gpu_request is None:
            return None
        owner = gpu_devices.Owner(uid, task.job, gpu_request.rules)
        return self._choose(row, trial, gpu_request, owner, before, task)

    def add(self, task: entities.Task, following: int) -> None:
        """Allocate GPUs to a task that was placed, nominated or restored. ``following``: equal
        tasks that were placed with it on the same node and are reported later."""
        row = self._session.nodes.rows.get(task.node)
        if row is None or task.uid in self._held or row not in self.gpus:
            return
        had = self._first.get(task.uid)
        if had is not None and had.row == row:
            self._hold(task, had)
            return
        trial = gpu_devices.copied(self.gpus[row])
        allocation = self._try_allocation(task, row, trial, -1 - following, task.uid)
        if allocation is not None:
            self._hold(task, _TaskAllocation(row, allocation.allocation))
            self.given_here.setdefault(row, set()).add(task.uid)

    def remove(self, task: entities.Task) -> None:
        """Release the task's GPUs."""
        task_allocation = self._held.pop(task.uid, None)
        if task_allocation is None:
            return
        for gpu in self._own_gpus(task_allocation.row):
            gpu.drop(task.uid)
        self.given_here.get(task_allocation.row, set()).discard(task.uid)
        self._changed(task_allocation.row)

    def allocation_of(self, task: entities.Task) -> gpu_devices.PodAllocation | None:
        """Return the GPUs that this session allocated to the task."""
        task_allocation = self._held.get(task.uid)
        return (
            None
            if task_allocation is None or task.uid in self._first
            else task_allocation.allocation
        )

    def _hold(self, task: entities.Task, task_allocation: _TaskAllocation) -> None:
        gpu_request = self.request_of(task)
        owner = gpu_devices.Owner(
            task.uid, task.job, gpu_request.rules if gpu_request else frozenset()
        )
        _put(self._own_gpus(task_allocation.row), owner, task_allocation.allocation)
        self._held[task.uid] = task_allocation
        self._changed(task_allocation.row)

    def _changed(self, row: int) -> None:
        self._states.pop(row, None)
        self._versions[row] += 1


def _put(
    some: list[gpu_devices.Gpu], owner: gpu_devices.Owner, allocation: gpu_devices.PodAllocation
) -> None:
    by_id = {gpu.uuid: gpu for gpu in some}
    for shares in allocation:
        for share in shares:
            if share.uuid in by_id:  # a GPU that no longer exists needs no accounting
                by_id[share.uuid].put(owner, share)
