"""The plugin ``resource-strategy-fit``: per resource, packs nodes or spreads over them.

With ``sra`` pods avoid nodes with scarce hardware that they do not request. With ``proportional``
enough cpu and memory is kept free for idle accelerators.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views, requirements
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import decoding

MOST, LEAST = "MostAllocated", "LeastAllocated"
TYPE_ANNOTATION = "volcano.sh/resource-strategy-scoring-type"
WEIGHT_ANNOTATION = "volcano.sh/resource-strategy-weight"
BEST = 100
DEFAULT_WEIGHT = 10
GIGABYTE_PER_MILLI = 10**6
"""Bytes to keep for a thousandth of an accelerator if the rate is 1 gigabyte (10^9 bytes) each."""

Points = npt.NDArray[np.float64]


class Strategy(msgspec.Struct, frozen=True):
    """The strategy for a resource: whether full nodes score higher, and the weight."""

    is_most: bool
    weight: int


class Strategies:
    """Strategies by resource name or prefix: ``example.com/gpu-*``."""

    def __init__(self, by_name: Mapping[str, Strategy]) -> None:
        self._exact = {
            name: strategy for name, strategy in by_name.items() if not name.endswith("*")
        }
        patterns = [
            (name[:-1], strategy)
            for name, strategy in by_name.items()
            if len(name) > 1 and name.endswith("*") and "*" not in name[:-1]
        ]
        self._patterns = sorted(patterns, key=lambda pattern: (-len(pattern[0]), pattern[0]))

    def of(self, name: str) -> Strategy | None:
        """Return the strategy of the exact name, else of the longest matching prefix."""
        if name in self._exact:
            return self._exact[name]
        return next(
            (strategy for start, strategy in self._patterns if name.startswith(start)), None
        )


class Plugin:
    """Scores nodes, and filters them if proportions are configured."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = arguments = options.typed()
        self._weight = arguments.integer("resourceStrategyFitWeight", DEFAULT_WEIGHT, least=0)
        self._strategies = Strategies(_configured(arguments.nested("resources")))
        self._rarity = RareHardware(arguments.nested("sra"))
        self._proportion = Proportion(arguments.nested("proportional"))
        self._overrides: dict[str, Strategies] = {}

    def open(self, ssn: session.Session) -> None:
        """Register the configured scores and filters."""
        self._names = ssn.resources.names
        ssn.complaints.extend(self._arguments.complaints)
        ssn.add_class_key(_annotations)
        ssn.add_node_order(self._score)
        if self._proportion.is_enabled:
            ssn.add_predicate(self._check)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _score(self, task: entities.Task, view: node_views.NodeView) -> extension_points.Scores:
        fit = self._fit(task, view) * (BEST * self._weight)
        rare = self._rarity.points(task, view, self._names)
        scores: extension_points.Scores = np.rint(
            (fit + rare) * extension_points.SCORE_UNIT
        ).astype(np.int64)
        return scores

    def _fit(self, task: entities.Task, view: node_views.NodeView) -> Points:
        """Return scores from 0 to 1; a node where a counted resource overflows has 0."""
        strategies = self._strategies_of(task)
        requested = [
            (column, strategy)
            for name, column in sorted((name, at) for at, name in enumerate(self._names))
            if task.request[column] > 0 and (strategy := strategies.of(name)) is not None
        ]
        total = np.zeros(view.size)
        fits = np.ones(len(total), np.bool_)
        weight = sum(strategy.weight for _, strategy in requested)
        for column, strategy in requested:
            has = view.allocatable[column]
            used = view.used[column] + task.request[column]
            wanted = used if strategy.is_most else has - used
            total += strategy.weight * np.divide(
                wanted, has, out=np.zeros(len(total)), where=has > 0
            )
            fits &= used <= has
        return np.where(fits, total / weight, 0.0) if weight else total

    def _strategies_of(self, task: entities.Task) -> Strategies:
        """Return the strategies in the pod's annotations, else the configured ones; none if the
        weights in the annotations are invalid."""
        kind, text = _annotations(task)
        if not kind:
            return self._strategies
        key = f"{kind}\n{text}"
        if key not in self._overrides:
            self._overrides[key] = Strategies(_annotation_values(kind, text))
        return self._overrides[key]

    def _check(
        self, task: entities.Task, view: node_views.NodeView
    ) -> Sequence[extension_points.Check]:
        return self._proportion.checks(task, view, self._names)


class RareHardware:
    """Scores nodes without scarce hardware higher for pods that do not request it."""

    def __init__(self, arguments: configuration.Arguments) -> None:
        weight = arguments.integer("weight", 0)
        self._weight = weight if arguments.boolean("enable", default=False) else 0
        own = arguments.nested("resourceWeight")
        self._weights = {
            name: own.integer(name, 1, least=0) for name in _listed(arguments.text("resources", ""))
        }

    def points(
        self, task: entities.Task, view: node_views.NodeView, names: Sequence[str]
    ) -> Points:
        """Return points from 0 to 100 times the weight; 0 where the node lacks a requested
        resource."""
        size = view.size
        total = sum(self._weights.values())
        if self._weight <= 0 or total == 0:
            return np.zeros(size)
        rare = np.zeros(size)
        has_all = np.ones(size, np.bool_)
        for column, name in enumerate(names):
            has = view.allocatable[column] > 0
            rare += has * self._weights.get(name, 0)
            if task.request[column] > 0:
                has_all &= has
        return np.where(has_all, (1 - rare / total) * (BEST * self._weight), 0.0)


class Proportion:
    """Keeps cpu and memory for idle accelerators."""

    def __init__(self, arguments: configuration.Arguments) -> None:
        self.is_enabled = arguments.boolean("enable", default=False)
        rates = arguments.nested("resourceProportion")
        self._rates = {
            name: (rates.number(f"{name}.cpu", 1.0), rates.number(f"{name}.memory", 1.0))
            for name in _listed(arguments.text("resources", ""))
        }

    def checks(
        self, task: entities.Task, view: node_views.NodeView, names: Sequence[str]
    ) -> Sequence[extension_points.Check]:
        """Return the nodes that keep enough free with the task. A task that requests an accelerator
        may use the cpu and memory kept for it."""
        columns = [column for column, name in enumerate(names) if name in self._rates]
        if any(task.request[column] > 0 for column in columns):
            columns = []
        checks = []
        for column in columns:
            cpu_rate, memory_rate = self._rates[names[column]]
            idle = view.idle[column]
            cpu_left = view.idle[requirements.CPU] - task.request[requirements.CPU]
            memory_left = view.idle[requirements.MEMORY] - task.request[requirements.MEMORY]
            is_kept = (cpu_left >= idle * cpu_rate) & (
                memory_left >= idle * memory_rate * GIGABYTE_PER_MILLI
            )
            passed = is_kept | (view.allocatable[column] <= 0)
            reason = f"node(s) keep cpu and memory for idle {names[column]}"
            checks.append(
                extension_points.Check(reason, extension_points.Code.UNRESOLVABLE, passed)
            )
        return checks


def _configured(arguments: configuration.Arguments) -> dict[str, Strategy]:
    """Return the strategies by resource."""
    if not arguments.values:
        return {
            "cpu": Strategy(is_most=False, weight=1),
            "memory": Strategy(is_most=False, weight=1),
        }
    strategies = {}
    for name in arguments.values:
        entry = arguments.nested(name)
        kind = entry.text("type", LEAST)
        if kind not in (LEAST, MOST):
            kind = entry.record_invalid("type", kind, f"{LEAST} or {MOST}", LEAST)
        strategies[name] = Strategy(kind == MOST, entry.integer("weight", 1, least=1))
    return strategies


def _annotations(task: entities.Task) -> tuple[str, str]:
    metadata = task.pod.metadata
    return metadata.annotation(TYPE_ANNOTATION) or "", metadata.annotation(WEIGHT_ANNOTATION) or ""


def _annotation_values(kind: str, text: str) -> dict[str, Strategy]:
    """Return the strategies in a pod's annotations, by exact resource names."""
    try:
        weights = decoding.from_json(text, dict[str, int])
    except msgspec.DecodeError:
        return {}
    return {
        name: Strategy(kind == MOST, max(weight, 1))
        for name, weight in weights.items()
        if not name.endswith("*")
    }


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
