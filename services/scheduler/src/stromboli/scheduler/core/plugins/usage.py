"""The plugin ``usage``: filters out nodes with high measured usage, and prefers nodes with low
usage.

Cpu and memory are measured by Prometheus. Measurements lag: they lack pods that were placed or
started recently, so an estimate of their use is added. Nodes without a measurement pass the filter
and score zero.

Disk and network are measured by the nodes' agents and are only scored: pods do not request them, so
a filter could keep pods pending because of a load that their users cannot see. A node of unknown
load counts as the mean of the known loads, so that it is neither preferred nor avoided.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.formats import units

CPU_HIGH = "node(s) had CPU usage above the threshold"
MEMORY_HIGH = "node(s) had memory usage above the threshold"
PERIOD = "10m"
"""The averaging period of measurements; no other is supported."""
LAG_S = 30
"""Seconds for which a running pod may be missing from measurements."""
_FULL = 100

_Loads = npt.NDArray[np.float64]
"""Cpu (milli) and memory (bytes), or fractions of capacity: 2 x nodes, or 2 for one node."""


class _Estimator(msgspec.Struct, frozen=True):
    """Estimates how much of their requests pods will use."""

    request_ratio: float
    burst_ratio: float
    risk_threshold: float
    risk_factor: float
    best_effort: tuple[float, float]

    def estimate(self, task: entities.Task, loads: _Loads) -> _Loads:
        """Return a pod's likely use (``2 x nodes``) on nodes with these loads (0 to 1)."""
        calm, risky = self._likely(task, 1.0), self._likely(task, self.risk_factor)
        estimated: _Loads = np.where(
            loads >= self.risk_threshold, risky[:, np.newaxis], calm[:, np.newaxis]
        )
        return estimated

    def _likely(self, task: entities.Task, risk: float) -> _Loads:
        if task.is_best_effort:
            return np.rint(np.array(self.best_effort) * risk)
        request = task.request[:2].astype(np.float64)
        limit = np.maximum(_limits(task), request)
        likely = request * self.request_ratio + (limit - request) * self.burst_ratio
        # Integers, so that a rollback subtracts exactly what was added.
        estimated: _Loads = np.rint(np.clip(likely * risk, 0, limit))
        return estimated


class Plugin:
    """Arguments: ``usage.weight``, ``cpu.weight``, ``memory.weight``, ``disk.weight``,
    ``network.weight``, ``thresholds``, ``estimator``."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        arguments = options.typed()
        defaults = {
            "usage.weight": 5, "cpu.weight": 1, "memory.weight": 1, "disk.weight": 0,
            "network.weight": 0,
        }  # fmt: skip
        weights = {name: arguments.integer(name, usual) for name, usual in defaults.items()}
        negative = [name for name, weight in weights.items() if weight < 0]
        for name in negative:
            arguments.complain(
                name,
                f"{weights[name]} is negative; {defaults[name]} is used, and the defaults of the "
                "other weights",
            )
        self._weight, *parts = (defaults if negative else weights).values()
        self._weights = np.array(parts[:2], np.float64)
        self._io_weights = np.array(parts[2:], np.float64)
        self._io_score: extension_points.Scores = np.zeros(0, np.int64)
        thresholds = _nested(arguments, "thresholds")
        self._thresholds = [_within(thresholds, name, 0, 100, 80) for name in ("cpu", "mem")]
        estimator = _nested(arguments, "estimator")
        self._estimator = _Estimator(
            _within(estimator, "request_ratio", 0, 1, 0.7),
            _within(estimator, "burst_ratio", 0, 1, 0),
            _within(estimator, "risk_threshold", 0, 1, 0.6),
            _within(estimator, "risk_factor", 1, float("inf"), 1.2),
            (
                _amount(estimator, "cpu", "be_cpu", "250m", 1),
                _amount(estimator, "memory", "be_mem", "200Mi", 2**20),
            ),
        )
        self._complaints = arguments.complaints
        self._measured: _Loads = np.zeros((2, 0))
        self._has_measured: extension_points.Mask = np.zeros(0, np.bool_)
        self._capacity: _Loads = np.zeros((2, 0))
        self._shadow: _Loads = np.zeros((2, 0))
        self._counted: dict[str, tuple[int, _Loads]] = {}
        """Task uid -> its row and the estimate that was added for it."""

    def open(self, ssn: session.Session) -> None:
        """Register the filter, the score and the estimates for placed tasks."""
        ssn.complaints.extend(self._complaints)
        usage = [ssn.cluster.usage.get(name) for name in ssn.nodes.names]
        self._has_measured = np.array(
            [each is not None and PERIOD in each.cpu for each in usage], np.bool_
        )
        self._measured = np.array(
            [
                [each.cpu.get(PERIOD, 0.0) if each else 0.0 for each in usage],
                [each.memory.get(PERIOD, 0.0) if each else 0.0 for each in usage],
            ]
        )
        self._capacity = _capacities(ssn)
        self._shadow = np.zeros_like(self._capacity)
        self._io_score = self._score_io(ssn)
        for tasks in ssn.nodes.tasks:
            # In the order of keys: each estimate depends on the sum of the previous ones.
            for _, task in sorted(tasks.items()):
                if _is_unmeasured(task, ssn):
                    self._count(ssn, task)
        ssn.add_class_key(_stated_limits)
        ssn.add_predicate(self._checks, extension_points.Scope.STATIC)
        ssn.add_node_order(self._scores)
        ssn.add_event_handler(lambda tasks: self._count_all(ssn, tasks), self._uncount_all)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        rows = view.rows
        return [
            extension_points.Check(
                reason,
                extension_points.Code.UNRESOLVABLE,
                ~self._has_measured[rows] | (self._measured[of, rows] <= self._thresholds[of]),
            )
            for of, reason in enumerate((CPU_HIGH, MEMORY_HIGH))
        ]

    def _scores(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        rows, total = view.rows, float(self._weights.sum())
        if not total:
            return self._io_score[rows] if self._io_weights.any() else None
        shadow = self._shadow[:, rows]
        if view.added is not None:
            shadow = self._with_added(task, rows, view.added)
        free = 1 - self._loads(rows, shadow)
        share = (free * self._weights[:, np.newaxis]).sum(axis=0) / total
        score = np.rint(share * _FULL * self._weight * extension_points.SCORE_UNIT).astype(np.int64)
        return np.where(self._has_measured[rows], score, 0) + self._io_score[rows]

    def _score_io(self, ssn: session.Session) -> extension_points.Scores:
        """Return the scores of all nodes for their disk and network: 100 times the weights for a
        node without load. They are equal for all pods, and constant in a session. O(nodes); without
        such weights, nothing is read."""
        if not self._io_weights.any():
            return np.zeros(len(ssn.nodes.names), np.int64)
        known = [ssn.model.auxiliary.node_usage.get(name) for name in ssn.nodes.names]
        sums = np.zeros(len(known))
        for weight, field in zip(self._io_weights, ("disk", "network"), strict=True):
            loads = [getattr(each, field, None) for each in known]
            percent = np.array([np.nan if load is None else load.percent for load in loads])
            is_known = ~np.isnan(percent)
            if weight and is_known.any():
                usual = percent[is_known].mean()
                sums += weight * (1 - np.where(is_known, percent, usual) / _FULL)
        points = np.rint(sums * _FULL * self._weight * extension_points.SCORE_UNIT)
        return points.astype(np.int64)

    def _with_added(
        self, task: entities.Task, rows: node_views.Rows, added: node_views.Counts
    ) -> _Loads:
        """Return the estimates with further tasks, one after another: each raises the risk of the
        next one."""
        shadow = self._shadow[:, rows].copy()
        for step in range(int(added.max(initial=0))):
            shadow += np.where(added > step, self._estimate(task, rows, shadow), 0)
        return shadow

    def _estimate(self, task: entities.Task, rows: node_views.Rows, shadow: _Loads) -> _Loads:
        total = float(self._weights.sum())
        loads = self._loads(rows, shadow) * self._weights[:, np.newaxis]
        weighed = loads.sum(axis=0) / total if total else np.zeros(shadow.shape[1])
        return self._estimator.estimate(task, weighed)

    def _loads(self, rows: node_views.Rows, shadow: _Loads) -> _Loads:
        """Return measured and estimated loads of nodes, 0 to 1."""
        capacity = self._capacity[:, rows]
        part = np.divide(shadow, capacity, out=np.zeros_like(capacity), where=capacity > 0)
        return np.clip(self._measured[:, rows] / _FULL + part, 0, 1)

    def _count_all(self, ssn: session.Session, tasks: Sequence[entities.Task]) -> None:
        for task in tasks:
            self._count(ssn, task)

    def _uncount_all(self, tasks: Sequence[entities.Task]) -> None:
        for task in tasks:
            self._uncount(task)

    def _count(self, ssn: session.Session, task: entities.Task) -> None:
        row = ssn.nodes.rows.get(task.node)
        if row is None or task.uid in self._counted:
            return
        rows = np.array([row], np.intp)
        estimated = self._estimate(task, rows, self._shadow[:, rows])[:, 0]
        self._shadow[:, row] += estimated
        self._counted[task.uid] = (row, estimated)

    def _uncount(self, task: entities.Task) -> None:
        row, estimated = self._counted.pop(task.uid, (0, np.zeros(2)))
        if estimated.any():
            self._shadow[:, row] -= estimated


class _Group(Mapping[str, Any]):
    """A group of arguments, given as a mapping or as flat names with dots."""

    def __init__(self, arguments: configuration.Arguments, name: str) -> None:
        self._nested = arguments.mapping(name)
        self._flat = arguments.values
        self._prefix = f"{name}."

    def __getitem__(self, name: str) -> Any:
        return self._nested[name] if name in self._nested else self._flat[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        yield from self._nested
        for name in self._flat:
            if name.startswith(self._prefix) and name[len(self._prefix) :] not in self._nested:
                yield name[len(self._prefix) :]

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _nested(arguments: configuration.Arguments, name: str) -> configuration.Arguments:
    return arguments.inside(name, _Group(arguments, name))


def _within(
    arguments: configuration.Arguments, name: str, least: float, most: float, default: float
) -> float:
    value = arguments.number(name, default)
    if least <= value <= most:
        return value
    arguments.record_invalid(name, value, f"from {least:g} to {most:g}", default)
    return default


def _amount(
    arguments: configuration.Arguments, resource: str, name: str, default: str, unit: int
) -> float:
    """Return the amount. A bare integer counts in ``unit``; a text is a quantity."""
    value = arguments.values.get(name, default)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value * unit)
    try:
        return float(units.amount(resource, arguments.text(name, default)))
    except ValueError as error:
        arguments.complain(name, f"{error}; {default!r} is used")
        return float(units.amount(resource, default))


def _capacities(ssn: session.Session) -> _Loads:
    """Return the capacity of nodes, not the allocatable amount: measurements are percentages of the
    whole machine."""
    capacity = ssn.nodes.allocatable[:2].astype(np.float64)
    for row, node in enumerate(ssn.nodes.objects):
        for column, name in enumerate(("cpu", "memory")):
            text = (node.status.capacity or {}).get(name)
            try:
                capacity[column, row] = (
                    capacity[column, row] if text is None else units.amount(name, text)
                )
            except ValueError:
                continue  # Keep the allocatable amount, which was parsed when the node was read.
    return capacity


def _is_unmeasured(task: entities.Task, ssn: session.Session) -> bool:
    if task.status is not entities.Status.RUNNING:
        return task.status in entities.ALLOCATED
    started = task.pod.status.start_time
    return started is None or (ssn.now - started).total_seconds() < LAG_S


def _stated_limits(task: entities.Task) -> Hashable:
    """Return the limits of the containers as written: the estimate depends on them."""
    limits = (container.resources.limits for container in task.pod.spec.containers)
    return tuple(tuple(sorted((each or {}).items())) for each in limits)


def _limits(task: entities.Task) -> _Loads:
    """Return the cpu and memory limits of the containers; 0 where none is set."""
    total = np.zeros(2)
    for container in task.pod.spec.containers:
        for column, name in enumerate(("cpu", "memory")):
            text = (container.resources.limits or {}).get(name)
            try:
                total[column] += 0 if text is None else units.amount(name, text)
            except ValueError:
                continue  # A limit that cannot be read counts as no limit.
    return total
