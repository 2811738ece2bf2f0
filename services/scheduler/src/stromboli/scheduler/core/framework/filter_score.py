"""Filter and score: feasible nodes of a task, and the best of them.

Answers are cached by task class and by the plugins' class keys. After a change only the changed
rows are computed again; ``Scope.GLOBAL`` answers are computed again as a whole. A task of a known
class therefore costs O(changed rows) plus a few passes over masks of all nodes, and a run of equal
tasks little more than one of them.
"""

import contextlib
import functools
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.framework import interfaces
from stromboli.scheduler.core.model import entities, node_views, resource_vectors
from stromboli.scheduler.core.placement import batch, extension_points

if TYPE_CHECKING:
    from stromboli.scheduler.core.framework import session

FEW_CANDIDATES = 4
"""If more than 1 / ``FEW_CANDIDATES`` of all rows changed, all are computed: one long call is
cheaper."""
UNREADABLE = "node(s) could not be read"
MAX_CACHED_BYTES = 2**27
"""Memory limit of the cached answers; beyond it the oldest class is computed again on demand."""
BYTES_PER_ROW = 32
"""Memory per class and row: two scores, four masks and one mask for each of about ten checks."""
MIN_CACHED_CLASSES = 64


class FilterResult:
    """The results of the predicates for all nodes; ``fits_idle`` and ``fits_future`` cover
    resources. ``passed``: nodes that pass all checks. ``resolvable``: nodes that may pass them
    after evictions. ``is_alone``: a check depends on tasks of all nodes, so that each placement may
    change it.
    """

    def __init__(
        self,
        passed: extension_points.Mask,
        checks: Sequence[extension_points.Check],
        own: Sequence[extension_points.Check],
        is_alone: bool,
    ) -> None:
        """``checks``: of plugins. ``own``: of the session, which evictions never change."""
        self.passed = passed
        self.checks = [*checks, *own]
        self.is_alone = is_alone
        self._own = own

    @property
    def resolvable(self) -> extension_points.Mask:
        """The nodes that pass all checks that evictions cannot change. Computed at each call, since
        only actions that evict need it."""
        mask: extension_points.Mask = np.ones(len(self.passed), np.bool_)
        for check in self.checks[: len(self.checks) - len(self._own)]:
            if check.code is not extension_points.Code.UNSCHEDULABLE:
                mask &= check.passed
        for check in self._own:
            mask &= check.passed
        return mask

    @property
    def passed_in_future(self) -> extension_points.Mask:
        """Nodes that pass once terminating tasks have ended. Resource checks are left out;
        ``fits_future`` covers them.
        """
        if all(check.passed.all() for check in self.checks if check.is_resource):
            return self.passed
        mask: extension_points.Mask = np.ones(len(self.passed), np.bool_)
        for check in self.checks:
            if not check.is_resource:
                mask &= check.passed
        return mask

    def refusals(self, requested: extension_points.Mask) -> Iterator[tuple[str, int]]:
        """Yield each reason with the number of these nodes that it rejects; a node counts for its
        resolvable reasons up to and including its first unresolvable one.
        """
        undecided = requested & ~self.passed
        for check in self.checks:
            refused = undecided & ~check.passed
            yield check.reason, int(np.count_nonzero(refused))
            if check.code is not extension_points.Code.UNSCHEDULABLE:
                undecided = undecided & check.passed


class _ClassCache:
    """Cached answers for one class, valid up to positions in the log of changed rows: fits and
    scores are updated separately, because many calls need no scores.
    """

    def __init__(self, size: int) -> None:
        self.position = self.scored = self.failed = -1
        self.checks: list[list[extension_points.Check]] = []
        self.passed: extension_points.Mask = np.ones(size, np.bool_)
        self.fixed: extension_points.Scores = np.zeros(size, np.int64)
        """The part of the score that does not change within the session."""
        self.score: extension_points.Scores = np.zeros(size, np.int64)
        self.fits_idle: extension_points.Mask = np.ones(size, np.bool_)
        self.fits_future: extension_points.Mask = np.ones(size, np.bool_)
        self.error = entities.FitError()
        """Why no node takes a task of the class, valid up to the position ``failed``."""


class NodeFinder:
    """Filter and score for one session."""

    def __init__(self, ssn: "session.Session") -> None:
        self._session = ssn
        self._nodes = ssn.nodes
        self._kept: OrderedDict[Hashable, _ClassCache] = OrderedDict()
        self._most_kept = max(
            MIN_CACHED_CLASSES, MAX_CACHED_BYTES // (BYTES_PER_ROW * (len(self._nodes) + 1))
        )
        self._is_future = False

    @contextlib.contextmanager
    def future(self) -> Iterator[None]:
        """Within it, ``FilterResult.passed`` is ``passed_in_future``: a node's terminating tasks
        count as ended. For trials of what a later session does."""
        self._is_future = True
        try:
            yield
        finally:
            self._is_future = False

    def pre_predicate(self, task: entities.Task) -> str | None:
        """Why the task fits on no node, if a plugin can determine it without checking nodes."""
        for test in self._session.flat(interfaces.PRE_PREDICATE):
            reason: str | None = test(task)
            if reason:
                return reason
        return None

    def kind(self, task: entities.Task) -> Hashable:
        """The cache key of the task: its class and the plugins' class keys."""
        own = self._session.reservations.class_key(task, self._session.job_of(task))
        others = (tell(task) for tell in self._session.flat(interfaces.CLASS_KEY))
        return (task.task_class, own, *others)

    def is_equal(self, task: entities.Task, other: entities.Task) -> bool:
        """Whether the tasks are equal for predicates and scores."""
        if task.task_class is not other.task_class:
            return False
        if self.is_decided_by_class and task.job == other.job:
            return True
        return self.kind(task) == self.kind(other)

    @property
    def is_decided_by_class(self) -> bool:
        """Whether tasks of one job and one class are always equal for predicates and scores."""
        ssn = self._session
        return ssn.reservations.is_empty and not ssn.flat(interfaces.CLASS_KEY)

    def filter_result(self, task: entities.Task) -> FilterResult:
        """The predicates' answers for all nodes in the current state."""
        kept = self._refreshed(task)
        checks = [check for some in kept.checks for check in some]
        passed, is_alone = kept.passed, False
        view = node_views.NodeView(self._nodes, task)
        for test in self._global_predicates:
            for check in test(task, view):
                checks.append(check)
                passed = passed & check.passed
                is_alone = True
        ssn = self._session
        own = (*ssn.topology.checks(task), *ssn.cooldowns.checks(task))
        reserved = ssn.reservations.checks(task, ssn.job_of(task))
        for check in (*own, *reserved):
            passed = passed & check.passed
        answer = FilterResult(passed, checks, (*own, *reserved), is_alone)
        if self._is_future:
            answer.passed = answer.passed_in_future
        return answer

    def plugin_checks(
        self, task: entities.Task
    ) -> Iterator[tuple[extension_points.Scope, extension_points.Check]]:
        """The checks of plugins over all nodes, without those of the session itself (topology,
        cooldowns, reservations); read-only.
        """
        scopes = self._session.scopes
        tests = self._session.flat(interfaces.PREDICATE)
        for test, checks in zip(tests, self._refreshed(task).checks, strict=True):
            yield from ((scopes[test], check) for check in checks)
        view = node_views.NodeView(self._nodes, task)
        for test in self._predicates(extension_points.Scope.GLOBAL):
            yield from ((extension_points.Scope.GLOBAL, check) for check in test(task, view))

    def fits_idle(self, task: entities.Task) -> extension_points.Mask:
        """Nodes with enough idle resources for the task; read-only."""
        return self._refreshed(task).fits_idle

    def fits_future(self, task: entities.Task) -> extension_points.Mask:
        """Nodes with enough resources once terminating tasks have ended; read-only."""
        return self._refreshed(task).fits_future

    def scores(self, task: entities.Task, rows: npt.NDArray[np.intp]) -> extension_points.Scores:
        """The sum of all node orders for the candidates, in ``extension_points.SCORE_UNIT``."""
        total: extension_points.Scores = self._scored(task).score[rows]
        compared = self._compared(task, rows)
        return total if compared is None else total + compared

    def best(self, task: entities.Task, candidates: extension_points.Mask) -> str:
        """The candidate with the best score; of equal ones the first by name. Needs at least
        one.
        """
        rows = np.flatnonzero(candidates)
        best = 0 if len(rows) == 1 else int(np.argmax(self.scores(task, rows)))
        return self._nodes.names[int(rows[best])]

    def best_for_run(
        self,
        task: entities.Task,
        filter_result: FilterResult,
        candidates: extension_points.Mask,
        count: int,
    ) -> list[str]:
        """Nodes for up to ``count`` equal tasks, each placed on idle resources where ``best`` would
        place it; at least one. Fewer if fewer fit or if each placement may change the answers.

        ``candidates``: nodes with room for one of the tasks.
        """
        rows = np.flatnonzero(candidates)
        compared = None if len(rows) == 1 and count == 1 else self._compared(task, rows)
        kept = self._scored(task)
        if filter_result.is_alone or compared is not None or count == 1:
            scores = kept.score[rows] if compared is None else kept.score[rows] + compared
            return [self._nodes.names[int(rows[np.argmax(scores)])]]

        def ask(
            requested: batch.Indices, added: node_views.Counts
        ) -> tuple[extension_points.Mask, extension_points.Scores]:
            view = node_views.NodeView(self._nodes, task, requested, added)
            takes = np.ones(len(requested), np.bool_)
            for test in self._predicates(extension_points.Scope.LOCAL):
                for check in test(task, view):
                    takes &= check.passed
            return takes, kept.fixed[requested] + self._local(task, view)

        def room(requested: batch.Indices) -> node_views.Counts:
            return self._room(task, requested, count)

        picked = batch.place_run(rows, kept.score[rows], room, count, ask)
        return [self._nodes.names[row] for row in picked]

    def ranked(self, task: entities.Task, candidates: extension_points.Mask) -> list[str]:
        """Candidates, the best first, equal ones by name."""
        rows = np.flatnonzero(candidates)
        order = np.argsort(-self.scores(task, rows), kind="stable")
        return [self._nodes.names[row] for row in rows[order]]

    def fit_error(
        self,
        task: entities.Task,
        filter_result: FilterResult,
        fits: extension_points.Mask | None = None,
    ) -> entities.FitError:
        """Why no node takes the task: missing resources first, then the predicates' reasons.

        ``fits``: nodes with enough resources; None if that was not checked. O(nodes), and O(1) for
        further tasks of a class while no node changes: thousands may wait for the same room.
        """
        kept = self._refreshed(task)
        if fits is not kept.fits_future or filter_result.passed is not kept.passed:
            return self._fit_error(task, filter_result, fits)
        if kept.failed < kept.position:
            kept.error, kept.failed = self._fit_error(task, filter_result, fits), kept.position
        return kept.error

    def _fit_error(
        self,
        task: entities.Task,
        filter_result: FilterResult,
        fits: extension_points.Mask | None,
    ) -> entities.FitError:
        counts: Counter[str] = Counter()
        requested = np.ones(len(self._nodes), np.bool_)
        if fits is not None:
            requested = fits
            counts.update(self._shortages(task, ~fits))
        for reason, count in filter_result.refusals(requested):
            counts[reason] += count
        return entities.FitError({reason: count for reason, count in counts.items() if count})

    def _shortages(self, task: entities.Task, undecided: extension_points.Mask) -> dict[str, int]:
        """The first missing resource of each node (cpu, memory, others by name) -> number of
        nodes.
        """
        names, future = self._session.resources.names, self._nodes.future_idle
        order = sorted(range(2, len(names)), key=names.__getitem__)
        unknown = undecided & ~self._nodes.labelled.usable
        counts = {UNREADABLE: int(np.count_nonzero(unknown))}
        undecided = undecided & ~unknown
        for column in (0, 1, *order):
            short = undecided & (task.request[column] > future[column])
            counts[f"Insufficient {names[column]}"] = int(np.count_nonzero(short))
            undecided = undecided & ~short
        return counts

    def room(self, task: entities.Task, count: int) -> node_views.Counts | None:
        """For each node an upper bound of the equal tasks, up to ``count``, that it can hold once
        terminating tasks have ended; None if each placement may change the results.
        """
        filter_result = self.filter_result(task)
        if filter_result.is_alone:
            return None
        fits = filter_result.passed & self.fits_future(task)
        requested = np.flatnonzero(task.request > 0)
        room = np.full(len(fits), count, np.int64)
        if requested.size:
            future = self._nodes.future_idle[requested]
            room = np.minimum(room, (future // task.request[requested, np.newaxis]).min(axis=0))
        return np.where(fits, room, 0)

    def _room(
        self, task: entities.Task, rows: npt.NDArray[np.intp], count: int
    ) -> node_views.Counts:
        """How many equal tasks, up to ``count``, fit into the idle resources of each row."""
        requested = np.flatnonzero(task.request > 0)
        if not requested.size:
            return np.full(len(rows), count, np.int64)
        idle = self._nodes.idle[requested][:, rows]
        room: node_views.Counts = (idle // task.request[requested, np.newaxis]).min(axis=0)
        return np.minimum(room, count)

    @functools.cached_property
    def _global_predicates(self) -> list[extension_points.Predicate]:
        return list(self._predicates(extension_points.Scope.GLOBAL))

    def _predicates(self, scope: extension_points.Scope) -> Iterator[extension_points.Predicate]:
        for test in self._session.flat(interfaces.PREDICATE):
            if self._session.scopes[test] is scope:
                yield test

    def _compared(
        self, task: entities.Task, rows: npt.NDArray[np.intp]
    ) -> extension_points.Scores | None:
        """Scores that compare candidates with each other; None for zeros."""
        total: extension_points.Scores | None = None
        view = node_views.NodeView(self._nodes, task, rows)
        for score in self._session.flat(interfaces.NODE_ORDER):
            if self._session.scopes[score] is extension_points.Scope.GLOBAL:
                answer = score(task, view)
                if answer is not None:
                    total = answer if total is None else total + answer
        return total

    def _local(self, task: entities.Task, view: node_views.NodeView) -> extension_points.Scores:
        """The part of the score that depends on the node's own tasks."""
        return self._summed(task, view, extension_points.Scope.LOCAL)

    def _summed(
        self, task: entities.Task, view: node_views.NodeView, scope: extension_points.Scope
    ) -> extension_points.Scores:
        total: extension_points.Scores = np.zeros(view.size, np.int64)
        for score in self._session.flat(interfaces.NODE_ORDER):
            if self._session.scopes[score] is scope:
                answer = score(task, view)
                if answer is not None:
                    total += answer
        return total

    def _refreshed(self, task: entities.Task) -> _ClassCache:
        kind = self.kind(task)
        kept = self._kept.get(kind)
        if kept is None:
            while len(self._kept) >= self._most_kept:
                self._kept.popitem(last=False)
            kept = self._kept[kind] = _ClassCache(len(self._nodes))
            self._evaluate(task, kept)
        elif kept.position < len(self._nodes.touched):
            self._refresh(task, kept, self._touched_since(kept.position))
        kept.position = len(self._nodes.touched)
        return kept

    def _scored(self, task: entities.Task) -> _ClassCache:
        """The cache of the task's class with up-to-date scores."""
        kept = self._refreshed(task)
        if kept.scored < 0:
            view = node_views.NodeView(self._nodes, task)
            kept.fixed = self._summed(task, view, extension_points.Scope.STATIC)
            kept.score = kept.fixed + self._local(task, view)
        elif kept.scored < len(self._nodes.touched):
            rows = self._touched_since(kept.scored)
            kept.score[rows] = kept.fixed[rows] + self._local(
                task, node_views.NodeView(self._nodes, task, rows)
            )
        kept.scored = len(self._nodes.touched)
        return kept

    def _touched_since(self, position: int) -> node_views.Rows:
        is_touched = np.zeros(len(self._nodes), np.bool_)
        is_touched[self._nodes.touched[position:]] = True
        rows = np.flatnonzero(is_touched)
        return rows if len(rows) * FEW_CANDIDATES <= len(self._nodes) else node_views.ALL

    def _evaluate(self, task: entities.Task, kept: _ClassCache) -> None:
        view = node_views.NodeView(self._nodes, task)
        for test in self._session.flat(interfaces.PREDICATE):
            scope = self._session.scopes[test]
            if scope is extension_points.Scope.GLOBAL:
                kept.checks.append([])
            elif scope is extension_points.Scope.LOCAL:
                kept.checks.append(_own(test(task, view)))
            else:
                kept.checks.append(list(test(task, view)))
        self._judge(kept, node_views.ALL)
        self._fit(task, kept, view)

    def _refresh(self, task: entities.Task, kept: _ClassCache, rows: node_views.Rows) -> None:
        view = node_views.NodeView(self._nodes, task, rows)
        tests = self._session.flat(interfaces.PREDICATE)
        for test, checks in zip(tests, kept.checks, strict=True):
            if self._session.scopes[test] is extension_points.Scope.LOCAL:
                for check, answer in zip(checks, test(task, view), strict=True):
                    check.passed[rows] = answer.passed
        self._judge(kept, rows)
        self._fit(task, kept, view)

    def _judge(self, kept: _ClassCache, rows: node_views.Rows) -> None:
        passed = np.ones(len(kept.passed[rows]), np.bool_)
        for checks in kept.checks:
            for check in checks:
                passed &= check.passed[rows]
        kept.passed[rows] = passed

    def _fit(self, task: entities.Task, kept: _ClassCache, view: node_views.NodeView) -> None:
        rows = view.rows
        usable = self._nodes.labelled.usable[rows]
        fits = resource_vectors.fits(task.request, view.idle)
        fits &= usable
        kept.fits_idle[rows] = fits
        if self._nodes.has_moving_tasks:
            fits = resource_vectors.fits(task.request, view.future_idle)
            fits &= usable
        kept.fits_future[rows] = fits


def _own(checks: Sequence[extension_points.Check]) -> list[extension_points.Check]:
    """Writable copies of masks; plugins may keep the originals."""
    return [check._replace(passed=check.passed.copy()) for check in checks]
