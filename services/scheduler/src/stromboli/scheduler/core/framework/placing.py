"""Finding a node for a task: what predicates refuse, what node orders like, what fits.

Answers are kept by class of tasks, and by what plugins look at besides. After a change only the
touched rows are asked again; what compares pods of different nodes with each other
(``Scope.GLOBAL``) is asked again as a whole. So a task of a class seen before costs O(touched) plus
a few passes over masks of all nodes.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.framework import amounts, model, points

if TYPE_CHECKING:
    from stromboli.scheduler.core.framework import session

FEW = 4
"""Above a quarter of all rows touched, all are asked: one long question is cheaper."""


class Verdict:
    """What predicates say of all nodes, resources aside. ``passed``: all checks; ``resolvable``:
    no check refuses for good, so that evicting may make room."""

    def __init__(
        self, passed: points.Mask, resolvable: points.Mask, checks: Sequence[points.Check]
    ) -> None:
        self.passed = passed
        self.resolvable = resolvable
        self.checks = checks

    def reasons(self, row: int) -> list[str]:
        """Why the row is refused: all mild reasons up to the first grave one."""
        found = []
        for check in self.checks:
            if not check.passed[row]:
                found.append(check.reason)
                if check.code is not points.Code.UNSCHEDULABLE:
                    break
        return found


class _Kept:
    """Answers for one class, true up to a position in the log of touched rows."""

    def __init__(self, size: int) -> None:
        self.position = -1
        self.checks: list[list[points.Check]] = []
        self.passed: points.Mask = np.ones(size, np.bool_)
        self.resolvable: points.Mask = np.ones(size, np.bool_)
        self.score: points.Scores = np.zeros(size, np.int64)
        self.fits_idle: points.Mask = np.ones(size, np.bool_)
        self.fits_future: points.Mask = np.ones(size, np.bool_)


class Finder:
    """Answers one session's questions about nodes for tasks."""

    def __init__(self, within: "session.Session") -> None:
        self._session = within
        self._nodes = within.nodes
        self._kept: dict[Hashable, _Kept] = {}

    def pre_predicate(self, task: model.Task) -> str | None:
        """Why the task fits nowhere, if a plugin knows it already."""
        for test in self._session.flat("pre_predicate", "enablePredicate"):
            reason: str | None = test(task)
            if reason:
                return reason
        return None

    def verdict(self, task: model.Task) -> Verdict:
        """What predicates say of all nodes, as they are now."""
        kept = self._fresh(task)
        checks = [check for some in kept.checks for check in some]
        passed, resolvable = kept.passed, kept.resolvable
        for test in self._session.flat("predicate", "enablePredicate"):
            if self._session.scopes[test] is points.Scope.GLOBAL:
                for check in test(task, points.ALL):
                    checks.append(check)
                    passed = passed & check.passed
                    if check.code is not points.Code.UNSCHEDULABLE:
                        resolvable = resolvable & check.passed
        return Verdict(passed, resolvable, checks)

    def fits_idle(self, task: model.Task) -> points.Mask:
        """Nodes where the task fits into what is idle now. Not to be changed by the caller."""
        return self._fresh(task).fits_idle

    def fits_future(self, task: model.Task) -> points.Mask:
        """Nodes where it fits once what is releasing is gone. Not to be changed by the caller."""
        return self._fresh(task).fits_future

    def scores(self, task: model.Task, rows: npt.NDArray[np.intp]) -> points.Scores:
        """The sum of what node orders say of candidates, in ``points.SCORE_UNIT``."""
        total: points.Scores = self._fresh(task).score[rows]
        for score in self._session.flat("node_order", "enableNodeOrder"):
            if self._session.scopes[score] is points.Scope.GLOBAL:
                answer = score(task, rows)
                if answer is not None:
                    total = total + answer
        return total

    def best(self, task: model.Task, candidates: points.Mask) -> str:
        """The candidate with the best score, of equals the first by name. At least one is given."""
        rows = np.flatnonzero(candidates)
        best = 0 if len(rows) == 1 else int(np.argmax(self.scores(task, rows)))
        return self._nodes.names[int(rows[best])]

    def ranked(self, task: model.Task, candidates: points.Mask) -> list[str]:
        """Candidates, the best first, equals by name."""
        rows = np.flatnonzero(candidates)
        order = np.argsort(-self.scores(task, rows), kind="stable")
        return [self._nodes.names[row] for row in rows[order]]

    def fit_error(
        self, task: model.Task, verdict: Verdict, fits: points.Mask | None = None
    ) -> model.FitError:
        """Why no node takes the task: shortage first, then what predicates said.

        ``fits``: nodes with room; None if room was not asked about. O(nodes).
        """
        counts: Counter[str] = Counter()
        unresolvable = set()
        for row, name in enumerate(self._nodes.names):
            if fits is not None and not fits[row]:
                counts[self._shortage(task, row)] += 1
                continue
            counts.update(verdict.reasons(row))
            if not verdict.resolvable[row]:
                unresolvable.add(name)
        return model.FitError(counts, unresolvable=frozenset(unresolvable))

    def _shortage(self, task: model.Task, row: int) -> str:
        future = self._nodes.future_idle_of(row)
        columns = range(len(future))
        short = amounts.short_names(self._session.resources, task.request, future, columns)
        return f"Insufficient {short[0]}" if short else "node(s) could not be read"

    def _fresh(self, task: model.Task) -> _Kept:
        kind = (task.task_class, *(tell(task) for tell in self._session.distinctions))
        kept = self._kept.get(kind)
        log = self._nodes.touched
        if kept is None:
            kept = self._kept[kind] = _Kept(len(self._nodes))
            self._ask(task, kept)
        elif kept.position < len(log):
            rows = np.unique(np.array(log[kept.position :], np.intp))
            if len(rows) * FEW > len(self._nodes):
                self._refresh(task, kept, points.ALL)
            else:
                self._refresh(task, kept, rows)
        kept.position = len(log)
        return kept

    def _ask(self, task: model.Task, kept: _Kept) -> None:
        for test in self._session.flat("predicate", "enablePredicate"):
            is_kept = self._session.scopes[test] is not points.Scope.GLOBAL
            kept.checks.append(_own(test(task, points.ALL)) if is_kept else [])
        self._judge(kept, points.ALL)
        self._sum_up(task, kept, points.ALL)

    def _refresh(self, task: model.Task, kept: _Kept, rows: points.Rows) -> None:
        tests = list(self._session.flat("predicate", "enablePredicate"))
        for test, checks in zip(tests, kept.checks, strict=True):
            if self._session.scopes[test] is points.Scope.LOCAL:
                for check, answer in zip(checks, test(task, rows), strict=True):
                    check.passed[rows] = answer.passed
        self._judge(kept, rows)
        self._sum_up(task, kept, rows)

    def _judge(self, kept: _Kept, rows: points.Rows) -> None:
        kept.passed[rows] = True
        kept.resolvable[rows] = True
        for checks in kept.checks:
            for check in checks:
                kept.passed[rows] &= check.passed[rows]
                if check.code is not points.Code.UNSCHEDULABLE:
                    kept.resolvable[rows] &= check.passed[rows]

    def _sum_up(self, task: model.Task, kept: _Kept, rows: points.Rows) -> None:
        kept.score[rows] = 0
        for score in self._session.flat("node_order", "enableNodeOrder"):
            if self._session.scopes[score] is not points.Scope.GLOBAL:
                answer = score(task, rows)
                if answer is not None:
                    kept.score[rows] += answer
        nodes, request = self._nodes, task.request[:, np.newaxis]
        usable = nodes.labelled.usable[rows]
        idle = nodes.idle[:, rows]
        future = idle + nodes.releasing[:, rows] - nodes.pipelined[:, rows]
        kept.fits_idle[rows] = np.all((request <= idle) | (request == 0), axis=0) & usable
        kept.fits_future[rows] = np.all((request <= future) | (request == 0), axis=0) & usable


def _own(checks: Sequence[points.Check]) -> list[points.Check]:
    """Copies that may be written to: plugins may hand out masks that they keep."""
    return [check._replace(passed=check.passed.copy()) for check in checks]
