"""The reference session's rules for single pods and nodes: feasibility and scores.

Predicates and scores as specified for Volcano's plugins, one node at a time. Scores are whole
millionths of a point; among equal nodes the first by name is the best.
"""

import math
from collections.abc import Sequence

from stromboli.shared.api import core
from stromboli.shared.formats import units
from stromboli.testkit.oracle import scheduler

Amounts = dict[str, int]
POINT = 10**6
DEFAULT_REQUEST = scheduler.DEFAULT_REQUEST


def request(pod: core.Pod) -> Amounts:
    """The amounts that a pod takes of a node, including one of the allowed pods."""
    return scheduler.request(pod)


class NodeRules:
    """Nodes, and the pods on each."""

    def __init__(self, nodes: Sequence[core.Node]) -> None:
        self.nodes = {node.metadata.name: node for node in nodes}
        self.has = {
            name: units.amounts(node.status.allocatable or {}) for name, node in self.nodes.items()
        }
        self.resources = sorted({resource for has in self.has.values() for resource in has})
        self.sitting: dict[str, dict[str, core.Pod]] = {name: {} for name in self.nodes}
        self.taken: dict[str, Amounts] = {name: {} for name in self.nodes}
        """Node -> requests of its pods."""
        self.assumed: dict[str, Amounts] = {name: {} for name in self.nodes}
        """Node -> requests of its pods for scores, where containers without requests count with a
        default amount."""
        self.totals: Amounts = {}
        for has in self.has.values():
            self.totals = units.add(self.totals, has)

    def put(self, pod: core.Pod, node: str) -> None:
        """Place the pod on the node; pods on unknown nodes are ignored."""
        if node in self.nodes:
            self.sitting[node][pod.metadata.key] = pod
            self._add_usage(pod, node, 1)

    def take(self, pod: core.Pod, node: str) -> None:
        """Remove the pod from the node."""
        del self.sitting[node][pod.metadata.key]
        self._add_usage(pod, node, -1)

    def _add_usage(self, pod: core.Pod, node: str, sign: int) -> None:
        requested = {name: sign * amount for name, amount in request(pod).items()}
        assumed = scheduler.request(pod, DEFAULT_REQUEST)
        self.taken[node] = units.add(self.taken[node], requested)
        self.assumed[node] = units.add(
            self.assumed[node], {name: sign * assumed[name] for name in DEFAULT_REQUEST}
        )

    def total(self, resource: str) -> int:
        """The allocatable amount of a resource on all nodes together."""
        return self.totals.get(resource, 0)

    def used(self, resource: str) -> int:
        """Requests of all pods on nodes."""
        return sum(taken.get(resource, 0) for taken in self.taken.values())

    def best(self, pod: core.Pod, *, needs_room: bool) -> str | None:
        """The best feasible node for the pod; None if there is none."""
        candidates = [
            name
            for name in self.nodes
            if (not needs_room or self.has_room(pod, name)) and self.accepts(pod, name)
        ]
        if not candidates:
            return None
        compared = self.compared(pod, candidates)
        return min(
            candidates,
            key=lambda name: (-(self.alone(pod, name) + compared[name]), name),
        )

    # Predicates

    def has_room(self, pod: core.Pod, name: str) -> bool:
        """Whether the idle resources of the node suffice."""
        return all(
            amount == 0
            or self.taken[name].get(resource, 0) + amount <= self.has[name].get(resource, 0)
            for resource, amount in request(pod).items()
        )

    def accepts(self, pod: core.Pod, name: str) -> bool:
        """Whether the node passes all predicates."""
        return (
            len(self.sitting[name]) < self.has[name].get("pods", 0)
            and scheduler.accepts(self.nodes[name], pod)
            and self.ports_are_free(pod, name)
            and self.keeps_apart(pod, name)
            and self.is_even(pod, name)
        )

    def ports_are_free(self, pod: core.Pod, name: str) -> bool:
        """Whether no pod on the node uses a host port that the pod requests."""
        held = {port for sitting in self.sitting[name].values() for port in _ports(sitting)}
        return not held & _ports(pod)

    def keeps_apart(self, pod: core.Pod, name: str) -> bool:
        """Whether neither the pod nor a pod in the same domain has an anti-affinity to the
        other."""
        for other_name, sitting in self.sitting.items():
            for other in sitting.values():
                for one, another in ((pod, other), (other, pod)):
                    for term in _anti_affinity_terms(one):
                        place = self.place(name, term.topology_key)
                        is_same = place is not None and place == self.place(
                            other_name, term.topology_key
                        )
                        if (
                            is_same
                            and one.metadata.namespace == another.metadata.namespace
                            and _selects(term.label_selector, another)
                        ):
                            return False
        return True

    def is_even(self, pod: core.Pod, name: str) -> bool:
        """Whether the skew of every hard spread constraint would be at most its maximum."""
        hard = [each for each in _spread(pod) if each.when_unsatisfiable == "DoNotSchedule"]
        eligible = [
            other
            for other in self.nodes
            if all(self.place(other, each.topology_key) is not None for each in hard)
        ]
        if hard and name not in eligible:
            return False
        for each in hard:
            counted = [other for other in eligible if self.is_selected(pod, other)]
            counts: dict[str, int] = {}
            for other in counted:
                place = self.place(other, each.topology_key)
                assert place is not None
                counts[place] = counts.get(place, 0) + self.number(each, pod, other)
            if not counts:
                continue
            fewest = 0 if len(counts) < (each.min_domains or 1) else min(counts.values())
            here = counts.get(self.place(name, each.topology_key) or "", 0)
            own = int(_selects(each.label_selector, pod))
            if here + own - fewest > each.max_skew:
                return False
        return True

    def is_selected(self, pod: core.Pod, name: str) -> bool:
        """Whether the pod's node selector matches the node."""
        labels = self.nodes[name].metadata.labels or {}
        wanted = pod.spec.node_selector or {}
        return all(labels.get(key) == value for key, value in wanted.items())

    def number(self, each: core.TopologySpreadConstraint, pod: core.Pod, name: str) -> int:
        """The number of pods on the node that the constraint counts."""
        return sum(
            other.metadata.namespace == pod.metadata.namespace
            and _selects(each.label_selector, other)
            for other in self.sitting[name].values()
        )

    def place(self, name: str, key: str) -> str | None:
        """The node's domain for a topology key; None without the label."""
        return (self.nodes[name].metadata.labels or {}).get(key)

    # Scores

    def alone(self, pod: core.Pod, name: str) -> int:
        """Scores that depend on one node alone: least requested, balance, binpack."""
        score = self.least(pod, name)
        requested = request(pod)
        if any(amount for resource, amount in requested.items() if resource != "pods"):
            before = self.evenness(name, {})
            score += 50 + (50 + self.evenness(name, requested) - before) // 2
        return score * POINT + self.packed(requested, name)

    def least(self, pod: core.Pod, name: str) -> int:
        """The part of cpu and memory that stays free, 0 to 100."""
        parts = []
        requested = scheduler.request(pod, DEFAULT_REQUEST)
        for resource in ("cpu", "memory"):
            has = self.has[name].get(resource, 0)
            if has > 0:
                left = has - self.assumed[name].get(resource, 0) - requested[resource]
                parts.append(left * 100 // has if left >= 0 else 0)
        return sum(parts) // len(parts) if parts else 0

    def evenness(self, name: str, more: Amounts) -> int:
        """The balance of the used parts of cpu and memory, 0 to 100."""
        parts = []
        for resource in ("cpu", "memory"):
            has = self.has[name].get(resource, 0)
            used = self.taken[name].get(resource, 0) + more.get(resource, 0)
            if has > 0:
                parts.append(min(used / has, 1.0))
        if len(parts) < 2:
            return 100
        return int((1 - abs((parts[0] - parts[1]) / 2)) * 100)

    def packed(self, requested: Amounts, name: str) -> int:
        """The used part of the node after the placement, over the resources that the pod requests;
        0 if one of them is exceeded.
        """
        parts = []
        for resource in ("cpu", "memory"):
            has = self.has[name].get(resource, 0)
            if requested[resource] == 0:
                continue
            used = self.taken[name].get(resource, 0) + requested[resource]
            if used > has > 0:
                return 0
            parts.append(used / has if has > 0 else 0.0)
        if not parts:
            return 0
        # Floating point as in Volcano, rounded once: ties at half a millionth do occur.
        total = parts[0] + parts[1] if len(parts) == 2 else parts[0]
        return round(total / len(parts) * 100 * POINT)

    def compared(self, pod: core.Pod, candidates: Sequence[str]) -> dict[str, int]:
        """Scores that compare candidates with each other: preferences, PreferNoSchedule taints,
        soft spread.
        """
        preferences = _scaled({name: self.wished(pod, name) for name in candidates})
        tired = _scaled({name: self.intolerable(pod, name) for name in candidates})
        spread = self.soft_spread(pod, candidates)
        return {
            name: POINT * (2 * preferences[name] + 3 * (100 - tired[name]) + 2 * spread[name])
            for name in candidates
        }

    def wished(self, pod: core.Pod, name: str) -> int:
        """The sum of the weights of preferred terms that the node meets."""
        affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
        labels = self.nodes[name].metadata.labels or {}
        terms = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
        return sum(
            term.weight
            for term in terms
            if all(
                labels.get(each.key) in each.values for each in term.preference.match_expressions
            )
        )

    def intolerable(self, pod: core.Pod, name: str) -> int:
        """The number of PreferNoSchedule taints that the pod does not tolerate."""
        keys = {
            toleration.key
            for toleration in pod.spec.tolerations
            if toleration.effect in ("", "PreferNoSchedule")
        }
        return sum(
            taint.effect == "PreferNoSchedule" and taint.key not in keys
            for taint in self.nodes[name].spec.taints
        )

    def soft_spread(self, pod: core.Pod, candidates: Sequence[str]) -> dict[str, int]:
        """Score of soft spread constraints, 0 to 100: the highest in the domain with the fewest
        pods."""
        soft = [each for each in _spread(pod) if each.when_unsatisfiable != "DoNotSchedule"]
        placed = [
            name
            for name in self.nodes
            if all(self.place(name, each.topology_key) is not None for each in soft)
        ]
        among = [name for name in candidates if name in placed]
        if not soft or not among:
            return dict.fromkeys(candidates, 0)
        crowd = dict.fromkeys(among, 0.0)
        for each in soft:
            size = len({self.place(name, each.topology_key) for name in among})
            counts: dict[str | None, int] = {}
            for name in placed:
                if self.is_selected(pod, name):
                    place = self.place(name, each.topology_key)
                    counts[place] = counts.get(place, 0) + self.number(each, pod, name)
            for name in among:
                here = counts.get(self.place(name, each.topology_key), 0)
                crowd[name] += here * math.log(size + 2) + (each.max_skew - 1)
        raw = {name: math.floor(value + 0.5) for name, value in crowd.items()}
        least, most = min(raw.values()), max(raw.values())
        return {
            name: 0
            if name not in raw
            else 100
            if most == 0
            else 100 * (most + least - raw[name]) // most
            for name in candidates
        }


def _scaled(raw: dict[str, int]) -> dict[str, int]:
    """Scores scaled so that the highest one is 100, rounded down."""
    most = max(raw.values())
    return {name: value * 100 // most if most else value for name, value in raw.items()}


def _ports(pod: core.Pod) -> set[int]:
    return {port.host_port for each in pod.spec.containers for port in each.ports if port.host_port}


def _anti_affinity_terms(pod: core.Pod) -> Sequence[core.PodAffinityTerm]:
    away = pod.spec.affinity and pod.spec.affinity.pod_anti_affinity
    return away.required_during_scheduling_ignored_during_execution if away else ()


def _spread(pod: core.Pod) -> Sequence[core.TopologySpreadConstraint]:
    return pod.spec.topology_spread_constraints


def _selects(selector: core.LabelSelector | None, pod: core.Pod) -> bool:
    labels = pod.metadata.labels or {}
    wanted = (selector.match_labels or {}) if selector is not None else None
    return wanted is not None and all(labels.get(key) == value for key, value in wanted.items())
