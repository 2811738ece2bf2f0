"""Classes of tasks: pods that predicates and scores cannot tell apart.

Labels are part of a class only as far as some pod's affinity, anti-affinity or spread selects by
them. Otherwise the index label of a job's pods would make each a class of its own.
"""

from collections.abc import Iterator

import msgspec

from stromboli.scheduler.core import shapes
from stromboli.scheduler.core.framework import model
from stromboli.shared.api import core


class Classes:
    """Interns classes; numbers are in the order of first sight."""

    def __init__(self, resources: shapes.Resources) -> None:
        self._shapes = shapes.Shapes(resources)
        self._known: dict[bytes, model.TaskClass] = {}
        self._numbers: dict[shapes.Shape, int] = {}
        self._made = 0
        self._label_keys: set[str] = set()

    def select(self, pod: core.Pod) -> frozenset[str]:
        """Take in by which labels the pod selects others; the keys that are new.

        Pods with such a label are of another class from now on. Keys are never forgotten: a label
        that nobody selects by any more makes classes finer than need be, and decides nothing.
        """
        new = frozenset(_selected(pod.spec)) - self._label_keys
        self._label_keys |= new
        return new

    def of(self, pod: core.Pod) -> model.TaskClass:
        """The class of a pod. Raises ValueError that names the bad quantity."""
        shape = self._shapes.of(pod.spec)
        spec, labels = pod.spec, pod.metadata.labels or {}
        kept = {key: labels[key] for key in sorted(self._label_keys & labels.keys())}
        parts = (
            self._numbers.setdefault(shape, len(self._numbers)),
            pod.metadata.namespace,
            kept,
            spec.affinity,
            spec.topology_spread_constraints,
            spec.volumes,
            [(container.ports, container.image) for container in spec.containers],
        )
        key = msgspec.msgpack.encode(parts)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= shapes.MOST_KEPT:
                self._known.clear()
                self._numbers.clear()
                return self.of(pod)
            found = model.TaskClass(self._made, shape, pod.metadata.namespace, kept, spec)
            self._made += 1
            self._known[key] = found
        return found


def _selected(spec: core.PodSpec) -> Iterator[str]:
    for constraint in spec.topology_spread_constraints:
        yield from constraint.match_label_keys
        yield from _keys(constraint.label_selector)
    for term in _terms(spec.affinity):
        yield from term.match_label_keys
        yield from term.mismatch_label_keys
        yield from _keys(term.label_selector)


def _terms(affinity: core.Affinity | None) -> Iterator[core.PodAffinityTerm]:
    if affinity is None:
        return
    for rule in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if rule is not None:
            yield from rule.required_during_scheduling_ignored_during_execution
            for wish in rule.preferred_during_scheduling_ignored_during_execution:
                yield wish.pod_affinity_term


def _keys(selector: core.LabelSelector | None) -> Iterator[str]:
    if selector is not None:
        yield from selector.match_labels or ()
        yield from (expression.key for expression in selector.match_expressions)
