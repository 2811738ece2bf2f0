"""A simple, slow reference session: enqueue, allocate and backfill with the default plugins.

Dictionaries and plain loops, one task and one node at a time, as specified for Volcano's actions
and plugins; it shares no code with the scheduler except quantities. The plugins are those of the
chart: priority and gang, then overcommit, drf, predicates, proportion, nodeorder and binpack.
Scores are whole millionths of a point. It supports the objects of ``session_clusters``: all can be
decoded, none is being deleted, and there are no volumes. The rules about single pods and nodes are
in ``node_rules``.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction

import msgspec

from stromboli.shared import keys
from stromboli.shared.api import core, meta, scheduling
from stromboli.shared.formats import units
from stromboli.testkit.oracle import node_rules as places

Amounts = dict[str, int]
HELD, WAITING = "held", "waiting"
"""States of a task: with a node, or without one."""


class Task(msgspec.Struct, eq=False):
    """A pod of a gang."""

    pod: core.Pod
    request: Amounts
    role: str
    priority: int
    state: str

    @property
    def asks_nothing(self) -> bool:
        """Whether the pod requests no resources."""
        return all(amount == 0 for name, amount in self.request.items() if name != "pods")


class Gang(msgspec.Struct, eq=False):
    """A PodGroup with its tasks. ``is_inside``: it is admitted to its queue."""

    group: scheduling.PodGroup
    priority: int
    least: Amounts | None
    tasks: list[Task]
    is_inside: bool
    failed_roles: set[str] = set()

    @property
    def minimum(self) -> int:
        """The number of tasks that the gang needs to start."""
        return self.group.spec.min_member

    def held(self) -> Amounts:
        """The requests of its tasks with nodes."""
        return _sum(task.request for task in self.tasks if task.state == HELD)

    def waiting(self) -> list[Task]:
        """Tasks without a node."""
        return [task for task in self.tasks if task.state == WAITING]

    def is_enough(self, tasks: Sequence[Task]) -> bool:
        """Whether these tasks are at least the minimum of the gang, and of each role if roles have
        minimums."""
        least = self.group.spec.min_task_member or {}
        if self.minimum >= sum(least.values()):
            roles = [task.role for task in tasks]
            if any(roles.count(role) < number for role, number in least.items()):
                return False
        return len(tasks) >= self.minimum

    def counts_as_ready(self) -> list[Task]:
        """Tasks with a node, and those without requests."""
        return [task for task in self.tasks if task.state == HELD or task.asks_nothing]

    def is_valid(self) -> bool:
        """Whether the gang has as many pods as it needs."""
        return self.is_enough(self.tasks)

    def is_ready(self) -> bool:
        """Whether its minimum of tasks has nodes."""
        return self.is_enough(self.counts_as_ready())


class Result(msgspec.Struct):
    """Pod key -> node, in the order of decisions, and the PodGroups that were enqueued.

    ``packs``: a gang did not fit in task order and might if all of its tasks were packed together,
    which is not modelled here (see ``services/scheduler/tests/oracle/packing.py``).
    """

    binds: dict[str, str] = {}
    inside: set[str] = set()
    packs: bool = False


def decide(objects: Iterable[meta.Object]) -> Result:
    """The decisions of a session over these objects."""
    return _Session(list(objects)).run()


class _Session:
    def __init__(self, objects: Sequence[meta.Object]) -> None:
        nodes = [each for each in objects if isinstance(each, core.Node)]
        self.places = places.NodeRules(sorted(nodes, key=lambda node: node.metadata.name))
        self.queues = {
            each.metadata.name: each for each in objects if isinstance(each, scheduling.Queue)
        }
        self.priorities = {
            each.metadata.name: each.value
            for each in objects
            if isinstance(each, core.PriorityClass)
        }
        pods = [each for each in objects if isinstance(each, core.Pod)]
        pods.sort(key=lambda pod: pod.metadata.key)
        for pod in pods:
            if pod.spec.node_name:
                self.places.put(pod, pod.spec.node_name)
        members: dict[str, list[core.Pod]] = {}
        for pod in pods:
            name = pod.metadata.annotation(keys.GROUP_NAME)
            if name:
                members.setdefault(f"{pod.metadata.namespace}/{name}", []).append(pod)
        groups = [each for each in objects if isinstance(each, scheduling.PodGroup)]
        self.gangs = [
            self.gang(group, members.get(group.metadata.key, []))
            for group in sorted(groups, key=lambda group: group.metadata.key)
            if group.spec.queue in self.queues
        ]
        self.held = {name: self.sum_of_queue(name, is_request=False) for name in self.queues}
        self.coming = {name: self.coming_to(name) for name in self.queues}
        self.deserved = self.share_out()
        self.result = Result()

    def gang(self, group: scheduling.PodGroup, pods: Iterable[core.Pod]) -> Gang:
        least = group.spec.min_resources
        return Gang(
            group,
            self.priorities.get(group.spec.priority_class_name, 0),
            None if least is None else units.amounts(least),
            [
                Task(
                    pod,
                    places.request(pod),
                    pod.metadata.annotation(keys.TASK_SPEC) or "",
                    1 if pod.spec.priority is None else pod.spec.priority,
                    HELD if pod.spec.node_name else WAITING,
                )
                for pod in pods
            ],
            is_inside=group.status.phase not in ("", "Pending"),
            failed_roles=set(),
        )

    def run(self) -> Result:
        self.enqueue()
        self.allocate()
        self.backfill()
        self.result.inside = {gang.group.metadata.key for gang in self.gangs if gang.is_inside}
        return self.result

    # Queues and their shares

    def sum_of_queue(self, queue: str, *, is_request: bool) -> Amounts:
        return _sum(
            task.request
            for gang in self.gangs
            if gang.group.spec.queue == queue
            for task in gang.tasks
            if is_request or task.state == HELD
        )

    def coming_to(self, queue: str) -> Amounts:
        """The part of their minimum resources that gangs in the queue have not been allocated
        yet."""
        total: Amounts = {}
        for gang in self.gangs:
            phase = gang.group.status.phase
            placed = sum(task.state == HELD for task in gang.tasks)
            is_awaited = phase == "Inqueue" or (phase == "Running" and placed >= gang.minimum)
            if gang.group.spec.queue == queue and gang.least is not None and is_awaited:
                total = units.add(total, _exceeds(gang.least, gang.held()))
        return total

    def limit(self, queue: str, resource: str) -> int:
        """The maximum that the queue can be allocated of a resource."""
        named = units.amounts(self.queues[queue].spec.capability or {})
        total = self.places.total(resource)
        own = named.get(resource)
        if own is None or (own <= 0 and resource in ("cpu", "memory")):
            return total
        return min(own, total)

    def share_out(self) -> dict[str, dict[str, Fraction]]:
        """Deserved amounts of queues with gangs, by water-filling in proportion to their
        weights."""
        queues = sorted({gang.group.spec.queue for gang in self.gangs})
        deserved: dict[str, dict[str, Fraction]] = {name: {} for name in queues}
        wanted = {name: self.sum_of_queue(name, is_request=True) for name in queues}
        for resource in self.places.resources:
            left = Fraction(self.places.total(resource))
            open_queues = {
                name: min(self.limit(name, resource), wanted[name].get(resource, 0))
                for name in queues
            }
            while open_queues:
                weights = {name: self.queues[name].spec.weight for name in open_queues}
                level = left / sum(weights.values())
                full = [name for name, most in open_queues.items() if most <= level * weights[name]]
                for name in full or open_queues:
                    most = open_queues[name]
                    deserved[name][resource] = min(Fraction(most), level * weights[name])
                    left -= deserved[name][resource]
                if not full:
                    break
                for name in full:
                    del open_queues[name]
        return deserved

    def queue_share(self, queue: str) -> Fraction:
        return max(
            (
                Fraction(self.held[queue].get(resource, 0)) / most
                for resource, most in self.deserved.get(queue, {}).items()
                if most > 0
            ),
            default=Fraction(0),
        )

    def queue_order(self, queue: str) -> tuple[int, Fraction, datetime, str]:
        found = self.queues[queue]
        created = found.metadata.creation_timestamp
        assert created is not None
        return (-found.spec.priority, self.queue_share(queue), created, queue)

    def is_overused(self, queue: str) -> bool:
        return all(
            most <= self.held[queue].get(resource, 0)
            for resource, most in self.deserved[queue].items()
        )

    def may_have(self, queue: str, task: Task) -> bool:
        is_open = self.queues[queue].status.state in ("", "Open")
        return is_open and all(
            self.held[queue].get(resource, 0) + amount <= self.deserved[queue][resource]
            for resource, amount in task.request.items()
            if amount > 0 and resource != "pods"
        )

    # Order

    def gang_order(self, gang: Gang) -> tuple[int, bool, bool, Fraction, datetime, str]:
        """Sort key: priority, then gangs with some but too few nodes, gangs that are not ready, the
        smaller share of the cluster, and age."""
        is_broken = not gang.is_ready() and any(task.state == HELD for task in gang.tasks)
        ready = len(gang.counts_as_ready()) >= gang.minimum
        held = gang.held()
        share = max(
            (
                Fraction(held.get(resource, 0), self.places.total(resource))
                for resource in self.places.resources
                if self.places.total(resource) > 0
            ),
            default=Fraction(0),
        )
        created = gang.group.metadata.creation_timestamp
        assert created is not None
        return (-gang.priority, not is_broken, ready, share, created, gang.group.metadata.uid)

    # Actions

    def enqueue(self) -> None:
        total_coming: Amounts = {}
        for coming in self.coming.values():
            total_coming = units.add(total_coming, coming)
        for queue in sorted(self.queues, key=self.queue_order):
            pending = [
                gang for gang in self.gangs if gang.group.spec.queue == queue and not gang.is_inside
            ]
            for gang in sorted(pending, key=self.gang_order):
                if self.queues[queue].status.state not in ("", "Open"):
                    continue
                if gang.least is not None:
                    if not self.may_enter(queue, gang.least, total_coming):
                        continue
                    total_coming = units.add(total_coming, gang.least)
                    self.coming[queue] = units.add(self.coming[queue], gang.least)
                gang.is_inside = True

    def may_enter(self, queue: str, least: Amounts, total_coming: Amounts) -> bool:
        elastic: Amounts = {}
        for gang in self.gangs:
            if gang.group.spec.queue == queue:
                held = gang.held()
                elastic = units.add(
                    elastic, held if gang.least is None else _exceeds(held, gang.least)
                )
        for resource, amount in least.items():
            if amount <= 0 or resource == "pods":
                continue
            needed = amount + total_coming.get(resource, 0) + self.places.used(resource)
            if 5 * needed > 6 * self.places.total(resource):
                return False
            kept = self.held[queue].get(resource, 0) + self.coming[queue].get(resource, 0)
            if kept - elastic.get(resource, 0) + amount > self.limit(queue, resource):
                return False
        return True

    def allocate(self) -> None:
        sheets: dict[str, list[Gang]] = {}
        tasks: dict[str, list[Task]] = {}
        for gang in self.gangs:
            wanted = [task for task in gang.waiting() if not task.asks_nothing]
            if gang.is_inside and gang.is_valid() and wanted:
                sheets.setdefault(gang.group.spec.queue, []).append(gang)
                tasks[gang.group.metadata.key] = sorted(wanted, key=_task_order)
        while sheets:
            queue = min(sheets, key=self.queue_order)
            if not sheets[queue] or self.is_overused(queue):
                del sheets[queue]
                continue
            gang = min(sheets[queue], key=self.gang_order)
            sheets[queue].remove(gang)
            left = tasks[gang.group.metadata.key]
            if self.serve(queue, gang, left) and left:
                sheets[queue].append(gang)

    def serve(self, queue: str, gang: Gang, left: list[Task]) -> bool:
        """Try to place the gang once; return whether it is ready and bound then."""
        placed: list[tuple[Task, str]] = []
        while left:
            task = left.pop(0)
            if not self.may_have(queue, task):
                continue
            if task.role and task.role in gang.failed_roles:
                continue
            node = self.places.best(task.pod, needs_room=True)
            if node is None:
                gang.failed_roles.add(task.role)
                if not self.goes_on(gang):
                    break
                continue
            self.take(queue, task, node)
            placed.append((task, node))
            if gang.is_ready():
                break
        if gang.is_ready():
            self.result.binds.update((task.pod.metadata.key, node) for task, node in placed)
            return True
        for task, node in placed:
            self.give_back(queue, task, node)
        self.result.packs |= bool(placed)
        return False

    def goes_on(self, gang: Gang) -> bool:
        """Whether the gang can still be placed without further tasks of a role of which one could
        not be placed."""
        if gang.minimum == len(gang.tasks):
            return False
        least = gang.group.spec.min_task_member or {}
        tasks = [task for task in gang.tasks if task.state == HELD]
        if gang.minimum < sum(least.values()):
            left = [task for task in gang.waiting() if task.role not in gang.failed_roles]
            return len(tasks) + len(left) >= gang.minimum
        roles = [task.role for task in tasks]
        return all(roles.count(role) >= least.get(role, 0) for role in gang.failed_roles)

    def backfill(self) -> None:
        waiting: list[tuple[Gang, Task]] = []
        for queue in sorted(self.queues, key=self.queue_order):
            gangs = [
                gang
                for gang in self.gangs
                if gang.group.spec.queue == queue and gang.is_inside and gang.is_valid()
            ]
            for gang in sorted(gangs, key=self.gang_order):
                wanted = [task for task in gang.waiting() if task.asks_nothing]
                waiting += [(gang, task) for task in sorted(wanted, key=_task_order)]
        kept: dict[str, list[tuple[Task, str]]] = {}
        for gang, task in waiting:
            node = self.places.best(task.pod, needs_room=False)
            if node is None:
                continue
            self.take(gang.group.spec.queue, task, node)
            placed = kept.setdefault(gang.group.metadata.key, [])
            placed.append((task, node))
            if gang.is_ready():
                placed.sort(key=lambda each: each[0].pod.metadata.key)
                self.result.binds.update((each.pod.metadata.key, on) for each, on in placed)
                placed.clear()

    def take(self, queue: str, task: Task, node: str) -> None:
        task.state = HELD
        self.places.put(task.pod, node)
        self.held[queue] = units.add(self.held[queue], task.request)

    def give_back(self, queue: str, task: Task, node: str) -> None:
        task.state = WAITING
        self.places.take(task.pod, node)
        lost = {name: -amount for name, amount in task.request.items()}
        self.held[queue] = units.add(self.held[queue], lost)


def _task_order(task: Task) -> tuple[int, int, str]:
    """Sort key: priority, then the number at the end of the name, then the uid; all tasks have the
    same age."""
    return (-task.priority, int(task.pod.metadata.name.rpartition("-")[2]), task.pod.metadata.uid)


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for each in amounts:
        total = units.add(total, each)
    return total


def _exceeds(amounts: Amounts, limit: Amounts) -> Amounts:
    return {name: max(amount - limit.get(name, 0), 0) for name, amount in amounts.items()}
