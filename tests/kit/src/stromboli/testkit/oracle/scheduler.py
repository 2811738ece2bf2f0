"""A simple, slow reference scheduler of dictionaries and plain loops, with which the fast one is
compared.

It supports only objects that can be decoded, and shares no code with the scheduler except
quantities. Every rule is implemented as specified for Volcano's actions and plugins, one node and
one task at a time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stromboli.shared import keys
from stromboli.shared.api import core, scheduling
from stromboli.shared.formats import units

Amounts = dict[str, int]
READY = ("Binding", "Bound", "Running", "Succeeded")
DEFAULT_REQUEST = {"cpu": 100, "memory": 200 * 2**20}


class ClusterObjects(msgspec.Struct, kw_only=True):
    """A cluster. ``assumed``: pod key -> node, for binds in flight."""

    nodes: Sequence[core.Node] = ()
    pods: Sequence[core.Pod] = ()
    pod_groups: Sequence[scheduling.PodGroup] = ()
    queues: Sequence[scheduling.Queue] = ()
    priority_classes: Sequence[core.PriorityClass] = ()
    assumed: Mapping[str, str] = msgspec.field(default_factory=dict)
    scheduler_names: Sequence[str] = ("volcano", "stromboli")


class Decision(msgspec.Struct, frozen=True):
    """The outcome for one gang: whether it is enqueued, and pod name -> node."""

    enqueue: bool
    binds: dict[str, str]


def decide(model: ClusterObjects) -> dict[str, Decision]:
    """PodGroup key -> its decision, for gangs that are enqueued or of which pods are placed."""
    return _Session(model).run()


class _Session:
    def __init__(self, model: ClusterObjects) -> None:
        self.model = model
        self.nodes = {node.metadata.name: node for node in model.nodes}
        self.has = {
            name: units.amounts(node.status.allocatable or {}) for name, node in self.nodes.items()
        }
        self.sitting: dict[str, list[core.Pod]] = {name: [] for name in self.nodes}
        for pod in model.pods:
            node = self.node_of(pod)
            if node in self.sitting and pod.status.phase not in ("Succeeded", "Failed"):
                self.sitting[node].append(pod)

    def run(self) -> dict[str, Decision]:
        groups = {
            group.metadata.key: group
            for group in self.model.pod_groups
            if group.metadata.deletion_timestamp is None and self.is_queue_open(group)
        }
        entered = self.enter(groups.values())
        inside = [
            group
            for group in groups.values()
            if group.metadata.key in entered or group.status.phase not in ("", "Pending")
        ]
        binds: dict[str, dict[str, str]] = {}
        steps = [(self.order(group, is_surplus=False), "minimum", group) for group in inside]
        steps += [(self.order(group, is_surplus=True), "surplus", group) for group in inside]
        for _, step, group in sorted(steps, key=lambda entry: (entry[0], entry[1])):
            done = binds.setdefault(group.metadata.key, {})
            if step == "minimum" and self.is_valid(group) and not self.is_ready(group, done):
                done |= self.place_minimum(group)
            elif step == "surplus" and self.is_valid(group) and self.is_ready(group, done):
                done |= self.place_surplus(group, done)
        return {
            key: Decision(key in entered, binds.get(key, {}))
            for key in groups
            if key in entered or binds.get(key)
        }

    # Enqueue

    def enter(self, groups: Iterable[scheduling.PodGroup]) -> set[str]:
        promised: Amounts = {}
        for group in self.model.pod_groups:
            if group.status.phase not in ("", "Pending"):
                promised = units.add(promised, self.outstanding(group))
        entered = set()
        knocking = [group for group in groups if group.status.phase in ("", "Pending")]
        for group in sorted(knocking, key=lambda known: self.order(known, is_surplus=False)):
            wanted = units.amounts(group.spec.min_resources or {})
            if all(
                amount == 0
                or name == "pods"
                or 5 * (amount + promised.get(name, 0) + self.used(name)) <= 6 * self.total(name)
                for name, amount in wanted.items()
            ):
                promised = units.add(promised, wanted)
                entered.add(group.metadata.key)
        return entered

    def outstanding(self, group: scheduling.PodGroup) -> Amounts:
        members = self.members(group)
        placed = [pod for pod in members if self.status(pod) in ("Binding", "Bound", "Running")]
        phase = group.status.phase
        if phase == "Running":
            if len(placed) < group.spec.min_member:
                return {}
        elif phase != "Inqueue":
            return {}
        taken: Amounts = {}
        gated = [
            pod for pod in members if self.status(pod) == "Pending" and pod.spec.scheduling_gates
        ]
        for pod in (*placed, *gated):
            taken = units.add(taken, request(pod))
        wanted = units.amounts(group.spec.min_resources or {})
        return {name: max(value - taken.get(name, 0), 0) for name, value in wanted.items()}

    def used(self, name: str) -> int:
        return sum(
            request(pod).get(name, 0) for sitting in self.sitting.values() for pod in sitting
        )

    def total(self, name: str) -> int:
        return sum(has.get(name, 0) for has in self.has.values())

    # Gangs

    def members(self, group: scheduling.PodGroup) -> list[core.Pod]:
        return [
            pod
            for pod in self.model.pods
            if pod.spec.scheduler_name in self.model.scheduler_names
            and pod.metadata.namespace == group.metadata.namespace
            and pod.metadata.annotation(keys.GROUP_NAME) == group.metadata.name
        ]

    def status(self, pod: core.Pod) -> str:
        if pod.status.phase == "Pending":
            if pod.metadata.deletion_timestamp:
                return "Releasing"
            if pod.spec.node_name:
                return "Bound"
            return "Binding" if self.node_of(pod) else "Pending"
        if pod.status.phase == "Running" and pod.metadata.deletion_timestamp:
            return "Releasing"
        return pod.status.phase

    def node_of(self, pod: core.Pod) -> str:
        return pod.spec.node_name or self.model.assumed.get(pod.metadata.key, "")

    def priority(self, group: scheduling.PodGroup) -> int:
        classes = {known.metadata.name: known for known in self.model.priority_classes}
        if group.spec.priority_class_name in classes:
            return classes[group.spec.priority_class_name].value
        return max((known.value for known in classes.values() if known.global_default), default=0)

    def is_queue_open(self, group: scheduling.PodGroup) -> bool:
        return any(
            queue.metadata.name == group.spec.queue and queue.status.state in ("", "Open")
            for queue in self.model.queues
        )

    def order(self, group: scheduling.PodGroup, *, is_surplus: bool) -> tuple[object, ...]:
        ready = sum(self.status(pod) in READY for pod in self.members(group))
        is_whole = self.is_ready(group, {})
        comes_first = ready > 0 and not is_whole and not is_surplus
        age = (group.metadata.creation_timestamp, group.metadata.uid)
        return (not comes_first, -self.priority(group), is_whole or is_surplus, *age)

    def is_valid(self, group: scheduling.PodGroup) -> bool:
        valid = [pod for pod in self.members(group) if self.status(pod) in (*READY, "Pending")]
        return self.is_enough(group, valid)

    def is_ready(self, group: scheduling.PodGroup, placed: Iterable[str]) -> bool:
        names = set(placed)
        return self.is_enough(
            group,
            [
                pod
                for pod in self.members(group)
                if self.status(pod) in READY or pod.metadata.name in names
            ],
        )

    def is_enough(self, group: scheduling.PodGroup, pods: Sequence[core.Pod]) -> bool:
        minimums = group.spec.min_task_member or {}
        if len(pods) < group.spec.min_member:
            return False
        if group.spec.min_member < sum(minimums.values()):
            return True
        roles = [pod.metadata.annotation(keys.TASK_SPEC) for pod in pods]
        return all(roles.count(role) >= minimum for role, minimum in minimums.items())

    def waiting_pods(self, group: scheduling.PodGroup) -> list[core.Pod]:
        return sorted(
            (
                pod
                for pod in self.members(group)
                if self.status(pod) == "Pending" and not pod.spec.scheduling_gates
            ),
            key=lambda pod: (
                -(1 if pod.spec.priority is None else pod.spec.priority),
                index_of(pod),
                pod.metadata.creation_timestamp,
                pod.metadata.uid,
            ),
        )

    # Placement

    def place_minimum(self, group: scheduling.PodGroup) -> dict[str, str]:
        trial: dict[str, str] = {}
        before = {name: list(pods) for name, pods in self.sitting.items()}
        for pod in self.waiting_pods(group):
            node = self.best_node(pod)
            if node:
                self.sitting[node].append(pod)
                trial[pod.metadata.name] = node
                if self.is_ready(group, trial):
                    return trial
        self.sitting = before
        return {}

    def place_surplus(self, group: scheduling.PodGroup, done: Mapping[str, str]) -> dict[str, str]:
        placed = {}
        for pod in self.waiting_pods(group):
            node = self.best_node(pod) if pod.metadata.name not in done else ""
            if node:
                self.sitting[node].append(pod)
                placed[pod.metadata.name] = node
        return placed

    def best_node(self, pod: core.Pod) -> str:
        feasible = [name for name in self.nodes if self.fits(pod, name)]
        return min(feasible, key=lambda name: (-self.score(pod, name), name), default="")

    def fits(self, pod: core.Pod, name: str) -> bool:
        requested = request(pod)
        for resource in {"cpu", "memory", *requested}:
            taken = sum(request(sitting).get(resource, 0) for sitting in self.sitting[name])
            is_asked = requested.get(resource, 0) > 0 or resource in ("cpu", "memory")
            free = self.has[name].get(resource, 0) - taken
            if is_asked and requested.get(resource, 0) > free:
                return False
        return accepts(self.nodes[name], pod)

    def score(self, pod: core.Pod, name: str) -> int:
        has = self.has[name]
        parts = []
        for resource in ("cpu", "memory"):
            if has.get(resource, 0) > 0:
                taken = sum(
                    request(other, DEFAULT_REQUEST)[resource] for other in self.sitting[name]
                )
                left = has[resource] - taken - request(pod, DEFAULT_REQUEST)[resource]
                parts.append(left * 100 // has[resource] if left >= 0 else 0)
        least = sum(parts) // len(parts) if parts else 0
        if all(value == 0 for resource, value in request(pod).items() if resource != "pods"):
            return least
        without = self.evenness(name, [], pod)
        return least + 50 + (50 + self.evenness(name, [pod], pod) - without) // 2

    def evenness(self, name: str, more: list[core.Pod], pod: core.Pod) -> int:
        names = ["cpu", "memory"]
        if request(pod).get("nvidia.com/gpu"):
            names.append("nvidia.com/gpu")
        fractions = []
        for resource in names:
            has = self.has[name].get(resource, 0)
            used = sum(request(other).get(resource, 0) for other in [*self.sitting[name], *more])
            if has > 0:
                fractions.append(min(used / has, 1.0))
        if len(fractions) < 2:
            return 100
        if len(fractions) == 2:
            return int((1 - abs((fractions[0] - fractions[1]) / 2)) * 100)
        mean = (fractions[0] + fractions[1] + fractions[2]) / 3
        squares = [(fraction - mean) * (fraction - mean) for fraction in fractions]
        return int((1 - math.sqrt((squares[0] + squares[1] + squares[2]) / 3)) * 100)


def index_of(pod: core.Pod) -> int:
    """The task's index; without one, the number at the end of a pod name with three parts or
    more."""
    text = pod.metadata.annotation(keys.TASK_INDEX)
    parts = pod.metadata.name.split("-")
    if text is None and len(parts) >= 3 and parts[-1].isdecimal():
        text = parts[-1]
    return 2**31 if text is None else int(text)


def request(pod: core.Pod, unasked: Mapping[str, int] | None = None) -> Amounts:
    """The amounts that a pod takes of a node."""

    def of(container: core.Container) -> Amounts:
        return {**(unasked or {}), **units.amounts(container.resources.requests or {})}

    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            sidecars = units.add(sidecars, of(container))
            starting = units.highest(starting, sidecars)
        else:
            starting = units.highest(starting, units.add(sidecars, of(container)))
    running = sidecars
    for container in pod.spec.containers:
        running = units.add(running, of(container))
    total = units.add(units.highest(running, starting), units.amounts(pod.spec.overhead or {}))
    return {"cpu": 0, "memory": 0, **total, "pods": 1}


def accepts(node: core.Node, pod: core.Pod) -> bool:
    """Whether the pod fits on the node if the node has no other pods."""
    labels = node.metadata.labels or {}
    for key, value in (pod.spec.node_selector or {}).items():
        if labels.get(key) != value:
            return False
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if required and not any(
        bool(term.match_expressions)
        and all(_holds(expression, labels) for expression in term.match_expressions)
        for term in required.node_selector_terms
    ):
        return False
    taints = list(node.spec.taints)
    if node.spec.unschedulable:
        taints.append(core.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"))
    return all(
        taint.effect == "PreferNoSchedule"
        or any(_tolerates(toleration, taint) for toleration in pod.spec.tolerations)
        for taint in taints
    )


def _holds(wanted: core.SelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(wanted.key)
    match wanted.operator:
        case "In":
            return value in wanted.values
        case "NotIn":
            return value not in wanted.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.isdecimal() and int(value) > int(wanted.values[0])
        case "Lt":
            return value is not None and value.isdecimal() and int(value) < int(wanted.values[0])
        case _:
            return False


def _tolerates(toleration: core.Toleration, taint: core.Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value
