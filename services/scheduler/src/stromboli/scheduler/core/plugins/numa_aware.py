"""The plugin ``numa-aware``: CPUs of a task's own where the kubelet gives them (spec/topology 2).

A node is asked as its kubelet will be: the free CPUs, its policy, the containers in order. Which
CPUs were meant for a task stands on its pod with the bind, so that they count until the node's own
report shows them held. A misfit is not helped by evicting: what is freed need not be what is
lacking.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from stromboli.scheduler.core.framework import configuration, model, points, session, views
from stromboli.scheduler.core.numa import alignment, cpus, nodes, wants
from stromboli.shared import cpu_lists, keys

BEST = 100
NO_REPORT = "node(s) had no report of their CPUs"
NOT_STATIC = "node(s) had another CPU manager policy than static"
OTHER_POLICY = "node(s) had another topology manager policy"
MISFIT = "node(s) had no CPUs that their topology manager would take together"
_NEWLY_PLACED = (model.Status.ALLOCATED, model.Status.PIPELINED)
_ANNOTATION = msgspec.json.Decoder(dict[str, str])


class Plugin:
    """Argument ``weight``."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._weight = self._arguments.integer("weight", 1)
        self._wants: dict[str, wants.Wants | None] = {}
        self._chosen: dict[str, tuple[int, alignment.Placed]] = {}
        """Task -> where it was placed in this session, and its CPUs."""

    def open(self, within: session.Session) -> None:
        """Read what nodes report, and register."""
        within.complaints.extend(self._arguments.complaints)
        self._session = within
        self._reports: dict[int, nodes.NodeCpus] = {}
        around = within.world.surroundings
        for found in within.cluster.numa_topologies:
            row = within.nodes.rows.get(found.metadata.name)
            report = around.machines.read(found)
            if isinstance(report, str):
                within.complaints.append(report)
            elif row is not None:
                self._reports[row] = report
        around.machines.forget(but=around.numa_topologies)
        self._free: dict[int, cpus.Cpus] = {}
        self._answers: dict[wants.Wants, _Answers] = {}
        self._changed: list[int] = []
        within.add_distinction(self._of)
        within.add_predicate(self._check, points.Scope.GLOBAL)
        if self._weight != 0:
            within.add_node_order(self._score, points.Scope.GLOBAL)
        within.add_event_handler(self._take, self._give_back)
        within.add_annotation(self._annotations)

    def close(self, within: session.Session) -> None:
        """Nothing stays: what was chosen stands on pods."""

    # Asking ---------------------------------------------------------------------------------

    def _of(self, task: model.Task) -> wants.Wants | None:
        """What the task wants, if that makes a difference on any node."""
        if task.uid not in self._wants:
            found = wants.of(task.pod)
            self._wants[task.uid] = found if found is not None and self._matters(found) else None
        return self._wants[task.uid]

    def _matters(self, wanted: wants.Wants) -> bool:
        return bool(wanted.policy) or (any(wanted.needs) and bool(self._reports))

    def _check(self, task: model.Task, view: views.View) -> list[points.Check]:
        wanted = self._of(task)
        if wanted is None:
            return []
        if not wanted.policy and not any(map(_enforces, self._reports.values())):
            return []
        answers = self._refreshed(wanted, view.size)
        return [
            points.Check(reason, points.Code.UNRESOLVABLE, answers.refused != number)
            for number, reason in enumerate((NO_REPORT, NOT_STATIC, OTHER_POLICY, MISFIT), start=1)
        ]

    def _score(self, task: model.Task, view: views.View) -> points.Scores | None:
        """Fewer NUMA nodes are better, for those that insist on an alignment."""
        wanted = self._of(task)
        if wanted is None or not wanted.policy:
            return None
        counts = self._refreshed(wanted, len(self._session.nodes)).cells[view.rows]
        most = int(counts.max(initial=0))
        parts = BEST - (BEST * counts // most if most else np.zeros_like(counts))
        scores: points.Scores = parts * self._weight * points.SCORE_UNIT
        return scores

    def _refreshed(self, wanted: wants.Wants, size: int) -> "_Answers":
        answers = self._answers.get(wanted)
        if answers is None:
            answers = self._answers[wanted] = _Answers(size)
            answers.position = len(self._changed)
            for row in range(size):
                self._answer(answers, wanted, row)
        for row in dict.fromkeys(self._changed[answers.position :]):
            self._answer(answers, wanted, row)
        answers.position = len(self._changed)
        return answers

    def _answer(self, answers: "_Answers", wanted: wants.Wants, row: int) -> None:
        report = self._reports.get(row)
        answers.refused[row] = _refusal(wanted, report)
        answers.cells[row] = 0
        if report is None or answers.refused[row] or not (wanted.policy or _enforces(report)):
            return
        found = self._placed(wanted, row)
        if found is None:
            answers.refused[row] = 4
        else:
            answers.cells[row] = report.machine.cells_of(found.all)

    def _placed(self, wanted: wants.Wants, row: int) -> alignment.Placed | None:
        report = self._reports[row]
        free = self._free_on(row) - report.reserved
        if wanted.policy and not free:
            return None
        return alignment.placed(report.machine, free, wanted.needs, report.policy)

    def _free_on(self, row: int) -> cpus.Cpus:
        """What the report shows free, less what is meant for pods that it does not show yet."""
        if row not in self._free:
            report = self._reports[row]
            meant = [
                _meant(task.pod.metadata.annotation(keys.CPUS))
                for task in self._session.nodes.tasks[row].values()
                if task.status in model.ON_NODE
                and not {task.pod.metadata.uid, task.key} & report.holders
            ]
            self._free[row] = report.free - cpus.NOTHING.union(*meant)
        return self._free[row]

    # Keeping --------------------------------------------------------------------------------

    def _take(self, tasks: Sequence[model.Task]) -> None:
        """CPUs of tasks that were placed or promised a place are theirs."""
        for task in tasks:
            row = self._session.nodes.rows.get(task.node)
            report = self._reports.get(-1 if row is None else row)
            wanted = self._of(task)
            if row is None or report is None or wanted is None or not _enforces(report):
                continue
            if task.status not in _NEWLY_PLACED:
                continue  # An eviction that was taken back: its CPUs never were free.
            free = self._free_on(row)
            found = self._placed(wanted, row)
            if found is not None and found.all:
                self._chosen[task.uid] = (row, found)
                self._put(row, free - found.all)

    def _give_back(self, tasks: Sequence[model.Task]) -> None:
        """What this session chose for tasks that it takes back."""
        for task in tasks:
            kept = self._chosen.pop(task.uid, None)
            if kept is not None:
                row, found = kept
                self._put(row, self._free_on(row) | found.all)

    def _put(self, row: int, free: cpus.Cpus) -> None:
        self._free[row] = free
        self._changed.append(row)

    def _annotations(self, task: model.Task) -> Mapping[str, str]:
        kept = self._chosen.get(task.uid)
        if kept is None:
            return {}
        named = zip(wants.names(task.pod), kept[1].of_containers, strict=True)
        return {keys.CPUS: _written({name: cpu_lists.written(own) for name, own in named if own})}


class _Answers:
    """For one kind of wants, by row: 0 or the number of the refusal, NUMA nodes of what would be
    chosen; true up to a position in the list of changed rows."""

    def __init__(self, size: int) -> None:
        self.position = 0
        self.refused = np.zeros(size, np.int8)
        self.cells = np.zeros(size, np.int64)


def _enforces(report: nodes.NodeCpus) -> bool:
    return report.is_static and report.policy != alignment.NONE


def _refusal(wanted: wants.Wants, report: nodes.NodeCpus | None) -> int:
    """What of the kubelet's settings keeps a pod off that insists; 0 for nothing."""
    if not wanted.policy:
        return 0
    if report is None:
        return 1
    if not report.is_static:
        return 2
    return 3 if report.policy != wanted.policy else 0


def _meant(text: str | None) -> cpus.Cpus:
    """CPUs that a bind of ours meant for a pod; none if that cannot be read."""
    try:
        found = _ANNOTATION.decode(text or "{}")
        return cpus.NOTHING.union(*(cpu_lists.parsed(each) for each in found.values()))
    except ValueError:
        return cpus.NOTHING


def _written(found: Mapping[str, str]) -> str:
    return msgspec.json.encode(found, order="sorted").decode()
