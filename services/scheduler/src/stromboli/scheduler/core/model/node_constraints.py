"""Which nodes a shape may run on, resources aside: selector, required affinity, taints.

Answers are masks over all nodes at once, and kept until a node's labels, taints or knownness
change. Texts are those of Kubernetes (spec/plugins 7), in the order in which it asks.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from stromboli.scheduler.core.model import node_attributes, requirements
from stromboli.shared.api import core

NOT_READY = "node(s) were not ready"
UNSCHEDULABLE = "node(s) were unschedulable"
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
TAINTED = "node(s) had untolerated taint(s)"

MAX_CACHED_BYTES = 2**25
"""What all answers that are kept may take: users can ask for any number of constraints."""
CHECKS = 6
"""Masks of an answer, a byte for each node."""
MIN_CACHED_ENTRIES = 16
_UNSCHEDULABLE_TAINT = core.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_NOT_READY_TAINT = core.Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
_REPELLING = ("NoSchedule", "NoExecute")

ConstraintMask: TypeAlias = tuple[str, node_attributes.Mask]
"""A reason and the nodes that pass."""


class ConstraintMasks(msgspec.Struct, frozen=True, eq=False):
    """What one shape's constraints say of all nodes: the checks in order, and their conjunction."""

    version: int
    checks: tuple[ConstraintMask, ...]
    passed: node_attributes.Mask


class ConstraintCache:
    """Answers by constraints, as long as the nodes stay what they are."""

    def __init__(
        self, nodes: node_attributes.NodeAttributes, bytes_kept: int = MAX_CACHED_BYTES
    ) -> None:
        self._nodes = nodes
        self._bytes_kept = bytes_kept
        self._kept: OrderedDict[bytes, ConstraintMasks] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, shape: requirements.PodRequirements) -> ConstraintMasks:
        """The answer for a shape; O(nodes) after a change, else O(1)."""
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
    if not tolerates(wanted.tolerations, _NOT_READY_TAINT):
        checks.append((NOT_READY, ~nodes.not_ready))
    if not tolerates(wanted.tolerations, _UNSCHEDULABLE_TAINT):
        checks.append((UNSCHEDULABLE, ~nodes.unschedulable))
    checks.append((AFFINITY, matches(nodes, wanted)))
    welcome = np.array(
        [
            all(tolerates(wanted.tolerations, taint) for taint in taints)
            for taints in nodes.taint_sets
        ],
        np.bool_,
    )
    checks.append((TAINTED, welcome[nodes.taints_of]))
    passed = np.logical_and.reduce([mask for _, mask in checks])
    return ConstraintMasks(version, tuple(checks), passed)


def tolerates(tolerations: Sequence[core.Toleration], taint: core.Taint) -> bool:
    """Whether the taint does not keep the pod off: by toleration, or as it only states a wish."""
    return taint.effect not in _REPELLING or any(
        (not toleration.effect or toleration.effect == taint.effect)
        and (not toleration.key or toleration.key == taint.key)
        and (
            toleration.operator == "Exists"
            or (bool(toleration.key) and toleration.value == taint.value)
        )
        for toleration in tolerations
    )


def matches(
    nodes: node_attributes.NodeAttributes, wanted: requirements.Constraints
) -> node_attributes.Mask:
    """Nodes that the selector and the required affinity allow."""
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
    """Nodes that one term means; an empty one means none, as Kubernetes has it."""
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
