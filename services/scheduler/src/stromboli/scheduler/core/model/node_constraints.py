"""Which nodes a pod's constraints allow: node selector, required node affinity, taints.

Answers are masks over all nodes, cached until a node's labels, taints or readability change.
Reasons and their order are those of Kubernetes.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from stromboli.scheduler.core.model import node_attributes, requirements
from stromboli.shared.api import core, taints

NOT_READY = "node(s) were not ready"
UNSCHEDULABLE = "node(s) were unschedulable"
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
TAINTED = "node(s) had untolerated taint(s)"

MAX_CACHED_BYTES = 2**25
"""Memory limit of all cached answers; users can create any number of different constraints."""
CHECKS = 6
"""Masks per answer, one byte per node each."""
MIN_CACHED_ENTRIES = 16

ConstraintMask: TypeAlias = tuple[str, node_attributes.Mask]
"""(reason, nodes that pass)."""


class ConstraintMasks(msgspec.Struct, frozen=True, eq=False):
    """The answer for one set of constraints: masks with reasons in order, and their conjunction."""

    version: int
    checks: tuple[ConstraintMask, ...]
    passed: node_attributes.Mask


class ConstraintCache:
    """Answers by constraints, valid for one ``placement_version``; the oldest one is dropped
    first.
    """

    def __init__(
        self, nodes: node_attributes.NodeAttributes, bytes_kept: int = MAX_CACHED_BYTES
    ) -> None:
        self._nodes = nodes
        self._bytes_kept = bytes_kept
        self._kept: OrderedDict[bytes, ConstraintMasks] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, shape: requirements.PodRequirements) -> ConstraintMasks:
        """The answer for a pod's requirements; O(nodes) after a change of nodes, else O(1)."""
        key = shape.placement
        kept = self._kept.get(key)
        version = self._nodes.placement_version
        if kept is None or kept.version != version:
            most = max(MIN_CACHED_ENTRIES, self._bytes_kept // (CHECKS * (len(self._nodes) + 1)))
            while len(self._kept) >= most:
                self._kept.popitem(last=False)
            kept = self._kept[key] = _check(self._nodes, shape.constraints, version)
        return kept


def _check(
    nodes: node_attributes.NodeAttributes, wanted: requirements.Constraints, version: int
) -> ConstraintMasks:
    checks: list[ConstraintMask] = [(node_attributes.UNREADABLE, nodes.usable)]
    if not taints.tolerates(wanted.tolerations, taints.NOT_READY):
        checks.append((NOT_READY, ~nodes.not_ready))
    if not taints.tolerates(wanted.tolerations, taints.UNSCHEDULABLE):
        checks.append((UNSCHEDULABLE, ~nodes.unschedulable))
    checks.append((AFFINITY, matches(nodes, wanted)))
    welcome = np.array(
        [
            all(taints.tolerates(wanted.tolerations, taint) for taint in of_node)
            for of_node in nodes.taint_sets
        ],
        np.bool_,
    )
    checks.append((TAINTED, welcome[nodes.taints_of]))
    passed = np.logical_and.reduce([mask for _, mask in checks])
    return ConstraintMasks(version, tuple(checks), passed)


def matches(
    nodes: node_attributes.NodeAttributes, wanted: requirements.Constraints
) -> node_attributes.Mask:
    """Nodes that the node selector and the required node affinity allow."""
    mask = np.ones(len(nodes), np.bool_)
    for key, value in wanted.selector:
        mask &= _one_of(nodes, key, (value,))
    if wanted.affinity is not None:
        terms = [term_matches(nodes, term) for term in wanted.affinity.node_selector_terms]
        mask &= np.logical_or.reduce(terms) if terms else False
    return mask


def term_matches(
    nodes: node_attributes.NodeAttributes, term: core.NodeSelectorTerm
) -> node_attributes.Mask:
    """Nodes that match one term; none for an empty term, as in Kubernetes."""
    wanted = [
        *(_expression(nodes, expression) for expression in term.match_expressions),
        *(_field(nodes, field) for field in term.match_fields),
    ]
    return np.logical_and.reduce(wanted) if wanted else np.zeros(len(nodes), np.bool_)


def _expression(
    nodes: node_attributes.NodeAttributes, wanted: core.SelectorRequirement
) -> node_attributes.Mask:
    answer = _OPERATORS.get(wanted.operator)
    if answer is None:
        return np.zeros(len(nodes), np.bool_)
    return answer(nodes, wanted.key, wanted.values)


def _field(
    nodes: node_attributes.NodeAttributes, wanted: core.SelectorRequirement
) -> node_attributes.Mask:
    if wanted.key != "metadata.name" or wanted.operator not in ("In", "NotIn"):
        return np.zeros(len(nodes), np.bool_)
    named = np.zeros(len(nodes), np.bool_)
    for name in wanted.values:
        if name in nodes.rows:
            named[nodes.rows[name]] = True
    return named if wanted.operator == "In" else ~named


def _one_of(
    nodes: node_attributes.NodeAttributes, key: str, values: Sequence[str]
) -> node_attributes.Mask:
    codes, known = nodes.label_codes(key)
    wanted = [known[value] for value in values if value in known]
    return np.isin(codes, wanted)


def _exists(
    nodes: node_attributes.NodeAttributes, key: str, values: Sequence[str]
) -> node_attributes.Mask:
    mask: node_attributes.Mask = nodes.label_codes(key)[0] >= 0
    return mask


def _compared_with_integer(
    nodes: node_attributes.NodeAttributes, key: str, values: Sequence[str], above: bool
) -> node_attributes.Mask:
    codes, known = nodes.label_codes(key)
    bound = _integer(values[0]) if len(values) == 1 else None
    if bound is None:
        return np.zeros(len(nodes), np.bool_)
    numbers = {value: _integer(value) for value in known}
    wanted = [
        known[value]
        for value, number in numbers.items()
        if number is not None and (number > bound if above else number < bound)
    ]
    return np.isin(codes, wanted)


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


_OPERATORS: Mapping[
    str, Callable[[node_attributes.NodeAttributes, str, Sequence[str]], node_attributes.Mask]
] = {
    "In": _one_of,
    "NotIn": lambda nodes, key, values: ~_one_of(nodes, key, values),
    "Exists": _exists,
    "DoesNotExist": lambda nodes, key, values: ~_exists(nodes, key, values),
    "Gt": lambda nodes, key, values: _compared_with_integer(nodes, key, values, above=True),
    "Lt": lambda nodes, key, values: _compared_with_integer(nodes, key, values, above=False),
}
