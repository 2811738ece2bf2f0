"""Determines which pods a resource quota counts, from its ``scopes`` and ``scopeSelector``.

Source: ``pkg/quota/v1/evaluator/core/pods.go`` of Kubernetes 1.34.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from stromboli.shared.api import core
from stromboli.shared.formats import units
from stromboli.shared.jobspec import quota

BY_PRIORITY = "PriorityClass"
"""The scope that supports all operators; the other scopes are either present or absent."""
MUST_BE_SAID = ("cpu", "memory")
"""Resources that determine the QoS class: a pod is BestEffort if no container requests any of
them."""


class PodTraits(msgspec.Struct, frozen=True):
    """The properties of a pod that determine which quotas count it."""

    scopes: frozenset[str]
    priority_class: str


def of(spec: core.ResourceQuotaSpec) -> Iterator[core.ScopeRequirement]:
    """The scopes of both fields, in the form of ``scopeSelector``."""
    for scope in spec.scopes:
        yield core.ScopeRequirement(scope_name=scope, operator="Exists")
    if spec.scope_selector is not None:
        yield from spec.scope_selector.match_expressions


def traits(spec: core.PodSpec) -> PodTraits:
    """The traits that a pod with this spec has when it is created."""
    scopes = frozenset(name for name, holds in SCOPES.items() if holds(spec))
    return PodTraits(scopes, spec.priority_class_name)


def counts(scopes: Iterable[core.ScopeRequirement], pod: PodTraits) -> bool:
    """Whether a quota with these scopes counts a pod with these traits. Without scopes it counts
    all pods."""
    return all(_matches(scope, pod) for scope in scopes)


def needs(spec: core.ResourceQuotaSpec, pods: Iterable[tuple[core.PodSpec, int]]) -> units.Amounts:
    """Quota name -> the amount of a quota that these pods use in total. ``pods``: (spec, number of
    such pods). Raises ValueError for an invalid quantity.
    """
    scopes, total = tuple(of(spec)), units.Amounts()
    for pod, count in pods:
        if counts(scopes, traits(pod)):
            total = units.add(total, units.times(count, quota.usage(pod)))
    return total


def _matches(scope: core.ScopeRequirement, pod: PodTraits) -> bool:
    if scope.scope_name != BY_PRIORITY:
        return scope.scope_name in pod.scopes
    if scope.operator in ("In", "NotIn"):
        return (pod.priority_class in scope.values) == (scope.operator == "In")
    return bool(pod.priority_class) == (scope.operator == "Exists")


def _is_best_effort(spec: core.PodSpec) -> bool:
    """Whether no container requests CPU or memory."""
    return not any(
        units.amount(name, value)
        for container in (*spec.containers, *spec.init_containers)
        for stated in (container.resources.requests, container.resources.limits)
        for name, value in (stated or {}).items()
        if name in MUST_BE_SAID
    )


def _looks_into_other_namespaces(spec: core.PodSpec) -> bool:
    affinity = spec.affinity or core.Affinity()
    sides = [side for side in (affinity.pod_affinity, affinity.pod_anti_affinity) if side]
    terms = [
        term
        for side in sides
        for term in (
            *side.required_during_scheduling_ignored_during_execution,
            *(
                weighted.pod_affinity_term
                for weighted in side.preferred_during_scheduling_ignored_during_execution
            ),
        )
    ]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


SCOPES: Mapping[str, Callable[[core.PodSpec], bool]] = {
    "Terminating": lambda spec: spec.active_deadline_seconds is not None,
    "NotTerminating": lambda spec: spec.active_deadline_seconds is None,
    "BestEffort": _is_best_effort,
    "NotBestEffort": lambda spec: not _is_best_effort(spec),
    "CrossNamespacePodAffinity": _looks_into_other_namespaces,
}
"""Scope -> whether a pod with this spec is in the scope."""
