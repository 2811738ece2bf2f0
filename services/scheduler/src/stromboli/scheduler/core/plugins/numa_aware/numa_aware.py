"""The plugin ``numa-aware``: aligns CPUs, devices and memory of a pod on NUMA nodes.

A node is evaluated as its kubelet will evaluate it: free hardware, topology manager policy,
containers in order. GPUs are chosen by their interconnect, network cards by their distance. The
decision is written to the pod with the bind, and counts until the node's report shows it. Eviction
does not resolve a misalignment, since the freed hardware may be on another NUMA node; it may
resolve a shortage of devices.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.numa import alignment, nodes, reports, requests
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.numa_aware import free_hardware

NAME = "numa-aware"
BEST = 100
MAX_CACHED = 100_000
"""Maximum number of results cached between sessions, over all kinds of requests."""
NO_REPORT = "node(s) had no report of their CPU topology"
NOT_STATIC = "node(s) had a CPU manager policy other than static"
OTHER_POLICY = "node(s) had a topology manager policy other than the required one"
MISFIT = "node(s) had no free CPUs that their topology manager policy accepts"
SILENT = "node(s) had an outdated hardware report from their agent"
TOO_FEW = "node(s) had too few free and healthy devices"
_REFUSALS = (
    (NO_REPORT, extension_points.Code.UNRESOLVABLE),
    (NOT_STATIC, extension_points.Code.UNRESOLVABLE),
    (OTHER_POLICY, extension_points.Code.UNRESOLVABLE),
    (MISFIT, extension_points.Code.UNRESOLVABLE),
    (SILENT, extension_points.Code.UNRESOLVABLE),
    (TOO_FEW, extension_points.Code.UNSCHEDULABLE),
)
"""Reasons, numbered from 1."""
_LASTING = frozenset({NO_REPORT, NOT_STATIC, OTHER_POLICY})
_NUMBERS = {reason: number for number, (reason, _) in enumerate(_REFUSALS, start=1)}
_LINKS_COUNT, _REST_COUNTS = 3, 1
"""Weights of a choice of GPUs: the quality of their links, and how little the remaining GPUs
lose."""


class Plugin:
    """Argument: ``weight``."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._weight = self._arguments.integer("weight", 1)
        self._wants: dict[str, requests.HardwareRequest | None] = {}

    def open(self, ssn: session.Session) -> None:
        """Read the reports of nodes, and register."""
        ssn.complaints.extend(self._arguments.complaints)
        self._session = ssn
        around = ssn.model.auxiliary
        reports_ = self._read(ssn)
        kept: free_hardware.CachedHardware = around.cached(f"{NAME}: nodes", (), dict)
        self._books = free_hardware.FreeHardware(ssn, reports_, kept)
        for name in set(kept) - {ssn.nodes.names[row] for row in reports_}:
            del kept[name]
        self._known: _Known = around.cached(f"{NAME}: answers", (), dict)
        if sum(map(len, self._known.values())) > MAX_CACHED:
            self._known.clear()
        self._has_memory = any(it.hardware.memory for it in self._books.reports.values())
        self._resources = {name for it in self._books.reports.values() for name in it.ids}
        self._answers: dict[requests.HardwareRequest, _Alignments] = {}
        ssn.add_class_key(self._of)
        ssn.add_predicate(self._check, extension_points.Scope.GLOBAL)
        if self._weight != 0:
            ssn.add_node_order(self._score, extension_points.Scope.GLOBAL)
        ssn.add_event_handler(self._on_allocate, self._on_deallocate)
        ssn.add_annotation(self._annotations)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions: decisions are annotations of pods."""

    def _read(self, ssn: session.Session) -> dict[int, nodes.NodeHardware]:
        """Return the reports by row. A report of the node agent takes precedence over a
        Numatopology."""
        node_hardwares: dict[int, nodes.NodeHardware] = {}
        around, table = ssn.model.auxiliary, ssn.nodes
        readings: list[tuple[str, nodes.KnownHardware]] = [
            (each.metadata.name, around.machines.read(each))
            for each in ssn.cluster.numa_topologies
            if each.metadata.name not in around.hardware
        ]
        for name, observed in sorted(around.hardware.items()):
            row = table.rows.get(name)
            if row is not None:
                allocatable = table.objects[row].status.allocatable
                readings.append((name, around.machines.observe(observed, allocatable)))
        for name, known in readings:
            row = table.rows.get(name)
            if isinstance(known, str):
                ssn.complaints.append(known)
            elif row is not None:
                node_hardwares[row] = known
        around.machines.forget(but={*around.numa_topologies, *around.hardware})
        return node_hardwares

    # Evaluation -----------------------------------------------------------------------------

    def _of(self, task: entities.Task) -> requests.HardwareRequest | None:
        """Return the task's hardware request; None if it has none that matters on any node."""
        if task.uid not in self._wants:
            pod_request = requests.hardware_request(task.pod)
            self._wants[task.uid] = (
                pod_request if pod_request is not None and self._matters(pod_request) else None
            )
        return self._wants[task.uid]

    def _matters(self, wanted: requests.HardwareRequest) -> bool:
        return (
            bool(wanted.policy)
            or (wanted.has_cpus and bool(self._books.reports))
            or (wanted.has_memory and self._has_memory)
            or not self._resources.isdisjoint(wanted.devices)
        )

    def _counts(self, wanted: requests.HardwareRequest, report: nodes.NodeHardware) -> bool:
        """Return whether the node must be evaluated: its kubelet aligns hardware, or there are
        devices to choose."""
        return _enforces(report) or not wanted.devices.isdisjoint(report.ids)

    def _check(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        wanted = self._of(task)
        if wanted is None:
            return []
        reports_ = self._books.reports.values()
        if not wanted.policy and not any(self._counts(wanted, report) for report in reports_):
            return []
        answers = self._refreshed(wanted, view.size)
        return [
            extension_points.Check(
                reason, code, answers.refused != number, is_lasting=reason in _LASTING
            )
            for number, (reason, code) in enumerate(_REFUSALS, start=1)
        ]

    def _score(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        """Score nodes: fewer NUMA nodes for pods that require alignment, and for pods with GPUs the
        quality of links and how little the other GPUs lose."""
        wanted = self._of(task)
        if wanted is None:
            return None
        parts = np.zeros(view.size, np.int64)
        answers = None
        if wanted.policy:
            answers = self._refreshed(wanted, len(self._session.nodes))
            counts = answers.numa_nodes[view.rows]
            most = int(counts.max(initial=0))
            parts += BEST - (BEST * counts // most if most else np.zeros_like(counts))
        if reports.GPU in wanted.devices and reports.GPU in self._resources:
            answers = answers or self._refreshed(wanted, len(self._session.nodes))
            parts += answers.linked()[view.rows]
        if answers is None:
            return None
        scores: extension_points.Scores = parts * self._weight * extension_points.SCORE_UNIT
        return scores

    def _refreshed(self, wanted: requests.HardwareRequest, size: int) -> "_Alignments":
        answers = self._answers.get(wanted)
        changed = self._books.changed
        if answers is None:
            answers = self._answers[wanted] = _Alignments(size)
            answers.position = len(changed)
            for row in range(size):
                self._answer(answers, wanted, row)
        for row in dict.fromkeys(changed[answers.position :]):
            self._answer(answers, wanted, row)
        answers.position = len(changed)
        return answers

    def _answer(self, answers: "_Alignments", wanted: requests.HardwareRequest, row: int) -> None:
        report = self._books.reports.get(row)
        refused = _refusal(wanted, report)
        answers.put(row, (refused, 0, 0, 0))
        if report is None or refused or not (wanted.policy or self._counts(wanted, report)):
            return
        # All inputs of the result: nodes with equal inputs share it.
        key = (
            report.hardware,
            self._books.room(row),
            self._books.uncertain(row),
            report.reserved,
            report.policy,
            report.is_static,
            report.by_pod,
        )
        known = self._known.setdefault(wanted, {})
        if key not in known:
            known[key] = self._compute_alignment(wanted, row)
        answers.put(row, known[key])

    def _compute_alignment(self, wanted: requests.HardwareRequest, row: int) -> "_AlignmentResult":
        report = self._books.reports[row]
        shares = self._placed(wanted, row)
        if isinstance(shares, str):
            return _NUMBERS[shares], 0, 0, 0
        numa_nodes = report.hardware.machine.cells_of(shares.all_cpus)
        some = {
            place for it in shares.of_containers for place in dict(it.devices).get(reports.GPU, ())
        }
        if not some:
            return 0, numa_nodes, 0, 0
        free = self._books.room(row).places(reports.GPU)
        worth = report.hardware.link_score
        links = worth(reports.GPU, some)
        harm = worth(reports.GPU, free) - worth(reports.GPU, free - some) - links
        return 0, numa_nodes, links, harm

    def _placed(self, wanted: requests.HardwareRequest, row: int) -> alignment.PodShares | str:
        """Return the shares that the task would get, or the reason why the node refuses it."""
        report, room = self._books.reports[row], self._books.room(row)
        requested = self._books.accounted_request(row, wanted)
        free = room._replace(cpus=room.cpus - report.reserved)
        if wanted.policy and not free.cpus:
            return MISFIT
        pod_shares = alignment.place_pod(report.hardware, free, requested, report.policy)
        if pod_shares is not None:
            return pod_shares
        return TOO_FEW if alignment.lacks_devices(report.hardware, free, requested) else MISFIT

    # Events ---------------------------------------------------------------------------------

    def _on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        """Allocate hardware to tasks that were placed, nominated or restored."""
        for task in tasks:
            row = self._session.nodes.rows.get(task.node)
            report = self._books.reports.get(-1 if row is None else row)
            if row is None or report is None:
                continue
            wanted = self._of(task)
            shares: alignment.PodShares | None = None
            if self._books.is_new(task) and wanted is not None and self._counts(wanted, report):
                placed = self._placed(wanted, row)
                shares = None if isinstance(placed, str) else placed
            self._books.add(task, row, shares)

    def _on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        """Release the hardware of tasks."""
        for task in tasks:
            self._books.remove(task)

    def _annotations(self, task: entities.Task) -> Mapping[str, str]:
        kept = self._books.chosen(task)
        if kept is None:
            return {}
        row, shares = kept
        return free_hardware.annotations(
            requests.container_names(task.pod), shares, self._books.reports[row]
        )


_AlignmentResult = tuple[int, int, int, int]
"""Number of the reason, NUMA nodes of the CPUs, quality of the GPU links, loss of the other
GPUs."""
_Known = dict[requests.HardwareRequest, dict[object, _AlignmentResult]]


class _Alignments:
    """Results for one kind of request, by row: 0 or the number of the reason; NUMA nodes of the
    CPUs, quality of the GPU links and loss of the other GPUs. Valid up to a position in the list of
    changed rows."""

    def __init__(self, size: int) -> None:
        self.position = 0
        self.refused = np.zeros(size, np.int8)
        self.numa_nodes = np.zeros(size, np.int64)
        self.links = np.zeros(size, np.int64)
        self.harm = np.zeros(size, np.int64)

    def put(self, row: int, answer: "_AlignmentResult") -> None:
        """Store the current result of a row."""
        self.refused[row], self.numa_nodes[row], self.links[row], self.harm[row] = answer

    def linked(self) -> extension_points.Scores:
        """Return 0 to ``BEST`` by row."""
        most, worst = int(self.links.max(initial=0)), int(self.harm.max(initial=0))
        links = BEST * self.links // most if most else np.zeros_like(self.links)
        spared = BEST - (BEST * self.harm // worst if worst else np.zeros_like(self.harm))
        scores: extension_points.Scores = (_LINKS_COUNT * links + _REST_COUNTS * spared) // (
            _LINKS_COUNT + _REST_COUNTS
        )
        return scores


def _enforces(report: nodes.NodeHardware) -> bool:
    aligns = report.is_static or bool(report.ids) or bool(report.hardware.memory)
    return report.policy != alignment.NONE and aligns


def _refusal(wanted: requests.HardwareRequest, report: nodes.NodeHardware | None) -> int:
    """Return the number of the reason for which the kubelet's settings refuse a pod that requires
    alignment; 0 if there is none."""
    if not wanted.policy:
        return 0
    if report is None:
        return _NUMBERS[NO_REPORT]
    if report.is_silent:
        return _NUMBERS[SILENT]
    if not report.is_static:
        return _NUMBERS[NOT_STATIC]
    return _NUMBERS[OTHER_POLICY] if report.policy != wanted.policy else 0
