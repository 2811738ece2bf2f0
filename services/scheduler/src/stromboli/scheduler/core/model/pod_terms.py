"""Pod affinity terms and label selectors, compiled once per task class.

All types are hashable, so that equal terms of many pods are counted once.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stromboli.scheduler.core.model import entities
from stromboli.shared.api import core

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has."""


class Selector(NamedTuple):
    """A label selector: all requirements (key, operator, values) must hold."""

    requirements: tuple[tuple[str, str, tuple[str, ...]], ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels match. A requirement with an unknown operator never holds."""
        return all(
            _requirement_matches(labels.get(key), how, of) for key, how, of in self.requirements
        )


class Matcher(NamedTuple):
    """Which pods a term selects. ``alive``: only pods that are not being deleted."""

    selector: Selector | None
    namespaces: tuple[str, ...]
    namespace_selector: Selector | None = None
    alive: bool = False

    def matches_pod(
        self,
        namespace: str,
        labels: Mapping[str, str],
        namespace_labels: Mapping[str, Mapping[str, str]],
        *,
        alive: bool,
    ) -> bool:
        """Whether a pod of this namespace with these labels is selected."""
        if self.selector is None or (self.alive and not alive):
            return False
        if namespace not in self.namespaces:
            if self.namespace_selector is None:
                return False
            known = {NAMESPACE_NAME: namespace, **namespace_labels.get(namespace, {})}
            if not self.namespace_selector.matches(known):
                return False
        return self.selector.matches(labels)


class Term(NamedTuple):
    """The pods to match, and a topology key: nodes with equal values of it form one domain."""

    topology_key: str
    pods: Matcher


class AffinityTerms(NamedTuple):
    """The affinity terms of a task class. ``preferences``: (weight, term), with negative weights
    for anti-affinity.
    """

    required_affinity: tuple[Term, ...] = ()
    required_anti_affinity: tuple[Term, ...] = ()
    preferences: tuple[tuple[int, Term], ...] = ()


_NO_TERMS = AffinityTerms()


def selector(
    label_selector: core.LabelSelector | None,
    labels: Mapping[str, str],
    same: Iterable[str] = (),
    other: Iterable[str] = (),
) -> Selector | None:
    """The selector, narrowed by ``matchLabelKeys`` (``same``) and ``mismatchLabelKeys``
    (``other``).

    None for an absent selector, which selects no pod. Keys that ``labels`` lacks do not narrow it.
    """
    if label_selector is None:
        return None
    requirements: list[tuple[str, str, tuple[str, ...]]] = [
        (key, "In", (value,)) for key, value in (label_selector.match_labels or {}).items()
    ]
    requirements += [
        (each.key, each.operator, tuple(sorted(each.values)))
        for each in label_selector.match_expressions
    ]
    requirements += [(key, "In", (labels[key],)) for key in same if key in labels]
    requirements += [(key, "NotIn", (labels[key],)) for key in other if key in labels]
    return Selector(tuple(sorted(set(requirements))))


def affinity_terms(task_class: entities.TaskClass) -> AffinityTerms:
    """The compiled terms of the class's pod affinity and anti-affinity."""
    affinity = task_class.affinity
    if affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity):
        return _NO_TERMS
    required_affinity = affinity.pod_affinity or core.PodAffinity()
    required_anti_affinity = affinity.pod_anti_affinity or core.PodAffinity()

    def liked(wished: core.PodAffinity, sign: int) -> list[tuple[int, Term]]:
        return [
            (sign * each.weight, _term(each.pod_affinity_term, task_class))
            for each in wished.preferred_during_scheduling_ignored_during_execution
        ]

    return AffinityTerms(
        _terms(required_affinity.required_during_scheduling_ignored_during_execution, task_class),
        _terms(
            required_anti_affinity.required_during_scheduling_ignored_during_execution, task_class
        ),
        (*liked(required_affinity, 1), *liked(required_anti_affinity, -1)),
    )


def _terms(
    pod_affinity_terms: Iterable[core.PodAffinityTerm], task_class: entities.TaskClass
) -> tuple[Term, ...]:
    return tuple(_term(each, task_class) for each in pod_affinity_terms)


def _term(pod_affinity_term: core.PodAffinityTerm, task_class: entities.TaskClass) -> Term:
    namespaces = tuple(sorted(pod_affinity_term.namespaces))
    if not namespaces and pod_affinity_term.namespace_selector is None:
        namespaces = (task_class.namespace,)
    pods = selector(
        pod_affinity_term.label_selector,
        task_class.labels,
        pod_affinity_term.match_label_keys,
        pod_affinity_term.mismatch_label_keys,
    )
    return Term(
        pod_affinity_term.topology_key,
        Matcher(pods, namespaces, selector(pod_affinity_term.namespace_selector, {})),
    )


def _requirement_matches(value: str | None, operator: str, values: tuple[str, ...]) -> bool:
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
