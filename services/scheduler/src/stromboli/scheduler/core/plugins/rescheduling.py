"""The plugin ``rescheduling``: moves pods off the busiest nodes while other nodes have room.

The action ``shuffle`` evicts the victims, once per interval; the time of the last run is kept
between sessions. Differences from Volcano: evictions stop as soon as the room of the quiet nodes is
used up or exceeded, not only when it is exactly zero; pods of the same name in two namespaces are
distinct.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from stromboli.scheduler.core.config import configuration, durations
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.shared.api import core
from stromboli.shared.formats import units

NAME = "rescheduling"
STRATEGY = "lowNodeUtilization"
_INTERVAL = timedelta(minutes=5)
_DIMENSIONS = ("cpu", "memory")
_FULL = 100


class _Limits(msgspec.Struct, frozen=True):
    """Percent by dimension. A node below all of ``low`` is quiet, a node above any of ``high`` is
    busy."""

    low: Mapping[str, float]
    high: Mapping[str, float]


class _Load(msgspec.Struct):
    """A node's measured use in percent. It decreases as victims are chosen."""

    row: int
    percent: dict[str, float]
    is_schedulable: bool

    @property
    def sum(self) -> float:
        """The sum of the percentages over dimensions, by which nodes are ordered."""
        return sum(self.percent.values())


class Plugin:
    """Arguments: ``interval``, ``metricsPeriod``, ``strategies``."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._period = self._arguments.text("metricsPeriod", "5m")
        self._interval = _INTERVAL
        self._strategies: list[_Limits] = []

    def open(self, ssn: session.Session) -> None:
        """Register the choice of victims if an interval has passed since the last run."""
        self._read()
        ssn.complaints.extend(self._arguments.complaints)
        # A time in the future was stored before the clock was set back.
        last = min(_time(ssn.cluster.memory.get(NAME)) or ssn.now, ssn.now)
        if not ssn.reached(last + self._interval):
            ssn.remember[NAME] = last.isoformat()
            return
        ssn.remember[NAME] = ssn.now.isoformat()
        ssn.request_session_at(ssn.now + self._interval)
        ssn.add_victim_tasks(lambda tasks: self._victims(ssn, tasks))

    def close(self, ssn: session.Session) -> None:
        """Does nothing: ``open`` stores the time of the last run."""

    def _read(self) -> None:
        text = self._arguments.text("interval", "5m")
        try:
            self._interval = durations.duration(text)
        except ValueError as error:
            self._arguments.complain("interval", str(error))
        for at, strategy in enumerate(self._arguments.items("strategies") or [{"name": STRATEGY}]):
            if isinstance(strategy, Mapping) and strategy.get("name") == STRATEGY:
                entry = self._arguments.inside(f"strategies[{at}]", strategy)
                self._strategies.append(_limits(entry.nested("params")))
            else:
                self._arguments.complain(
                    f"strategies[{at}]",
                    f"{strategy!r} is ignored: its name is not that of a known strategy; "
                    f"write: - name: {STRATEGY}",
                )

    def _victims(
        self, ssn: session.Session, tasks: Sequence[entities.Task]
    ) -> Sequence[entities.Task]:
        victims: dict[str, entities.Task] = {}
        for limits in self._strategies:
            chosen = _choose(ssn, tasks, limits, self._period)
            victims.update({task.uid: task for task in chosen})
        return list(victims.values())


def _limits(arguments: configuration.Arguments) -> _Limits:
    low, high = arguments.nested("thresholds"), arguments.nested("targetThresholds")
    return _Limits(
        {name: low.integer(name, _FULL) for name in _DIMENSIONS},
        {name: high.integer(name, _FULL) for name in _DIMENSIONS},
    )


def _choose(
    ssn: session.Session, tasks: Sequence[entities.Task], limits: _Limits, period: str
) -> list[entities.Task]:
    loads = _loads(ssn, period)
    low = [
        load
        for load in loads
        if load.is_schedulable and all(load.percent[of] < limits.low[of] for of in _DIMENSIONS)
    ]
    quiet = {load.row for load in low}
    busy = [
        load
        for load in loads
        if load.row not in quiet and any(load.percent[of] > limits.high[of] for of in _DIMENSIONS)
    ]
    room = {
        name: sum(
            (limits.high[name] - load.percent[name])
            / _FULL
            * float(ssn.nodes.allocatable[column, load.row])
            for load in low
        )
        for column, name in enumerate(_DIMENSIONS)
    }
    on_node: dict[str, list[entities.Task]] = {}
    for task in tasks:
        on_node.setdefault(task.node, []).append(task)
    victims = []
    for load in sorted(busy, key=lambda load: (-load.sum, load.row)) if low else ():
        for task in sorted(on_node.get(ssn.nodes.names[load.row], ()), key=_eviction_preference):
            if min(room.values()) <= 0 or not any(
                load.percent[of] >= limits.high[of] for of in _DIMENSIONS
            ):
                break
            _move(ssn, task, load, room)
            victims.append(task)
    return victims


def _move(ssn: session.Session, task: entities.Task, load: _Load, room: dict[str, float]) -> None:
    capacity = _capacity(ssn, load.row)
    for column, name in enumerate(_DIMENSIONS):
        request = float(task.request[column])
        room[name] -= request
        if capacity[name]:
            load.percent[name] -= request / capacity[name] * _FULL


def _loads(ssn: session.Session, period: str) -> list[_Load]:
    """Return the loads of the nodes whose usage is known: others may be full."""
    loads = []
    for row, name in enumerate(ssn.nodes.names):
        measured = ssn.cluster.usage.get(name)
        if measured is None or period not in measured.cpu or period not in measured.memory:
            continue
        percent = {"cpu": measured.cpu[period], "memory": measured.memory[period]}
        loads.append(_Load(row, percent, not ssn.nodes.objects[row].spec.unschedulable))
    return loads


def _capacity(ssn: session.Session, row: int) -> dict[str, float]:
    quantities = ssn.nodes.objects[row].status.capacity or {}
    return {
        name: float(units.amount(name, quantities[name]) if name in quantities else 0)
        for name in _DIMENSIONS
    }


def _eviction_preference(task: entities.Task) -> tuple[float, int, str]:
    """Return the sort key of victims: pods without a priority, then low priority, then low quality
    of service."""
    priority = task.pod.spec.priority
    return (float("-inf") if priority is None else priority, _quality(task), task.key)


def _quality(task: entities.Task) -> int:
    """Return 0 for BestEffort, 1 for Burstable, 2 for Guaranteed pods."""
    parts = [each.resources for each in task.pod.spec.containers]
    if not any(part.requests or part.limits for part in parts):
        return 0
    return 1 + all(_is_guaranteed(part) for part in parts)


def _is_guaranteed(part: core.ResourceRequirements) -> bool:
    """Return whether the container's requests equal its limits."""
    limits = part.limits or {}
    requests = {**limits, **(part.requests or {})}
    try:
        return all(
            name in limits and units.quantity(requests[name]) == units.quantity(limits[name])
            for name in _DIMENSIONS
        )
    except ValueError:
        return False


def _time(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
