"""Finding a node for a task: what predicates refuse, what node orders like.

Answers are kept by class of tasks. After a placement only the touched rows are asked again; what
compares pods of different nodes with each other (``Scope.GLOBAL``) is asked again as a whole.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from stromboli.scheduler.core.framework import model, points, session


class Verdict:
    """What predicates say of rows: ``passed`` all checks; ``resolvable``: no check refuses for
    good, so that eviction may make room."""

    def __init__(self, size: int, checks: Sequence[points.Check]) -> None:
        self.checks = checks
        self.passed: points.Mask = np.ones(size, np.bool_)
        self.resolvable: points.Mask = np.ones(size, np.bool_)
        for check in checks:
            self.passed &= check.passed
            if check.code is not points.Code.UNSCHEDULABLE:
                self.resolvable &= check.passed

    def reasons(self, row: int) -> list[str]:
        """Why the row is refused: all mild reasons up to the first grave one."""
        found = []
        for check in self.checks:
            if not check.passed[row]:
                found.append(check.reason)
                if check.code is not points.Code.UNSCHEDULABLE:
                    break
        return found


def pre_predicate(within: session.Session, task: model.Task) -> str | None:
    """Why the task fits nowhere, if a plugin knows it already."""
    for test in within.flat("pre_predicate", "enablePredicate"):
        reason: str | None = test(task)
        if reason:
            return reason
    return None


def predicate(within: session.Session, task: model.Task, rows: points.Rows = points.ALL) -> Verdict:
    """What predicates say of nodes, resources aside."""
    checks: list[points.Check] = []
    for test in within.flat("predicate", "enablePredicate"):
        checks.extend(test(task, rows))
    return Verdict(_size(within, rows), checks)


def scores(within: session.Session, task: model.Task, rows: points.Rows) -> points.Scores:
    """The sum of what node orders say, in ``points.SCORE_UNIT``."""
    total = np.zeros(_size(within, rows), np.int64)
    for score in within.flat("node_order", "enableNodeOrder"):
        answer = score(task, rows)
        if answer is not None:
            total += answer
    return total


def ranked(within: session.Session, task: model.Task, rows: points.Rows) -> list[int]:
    """Row numbers, the best first; equals by name."""
    candidates = np.arange(len(within.nodes))[rows]
    order = np.argsort(-scores(within, task, candidates), kind="stable")
    return [int(row) for row in candidates[order]]


def refusals(verdict: Verdict, size: int) -> Counter[str]:
    """Reason -> nodes."""
    return Counter(reason for row in range(size) for reason in verdict.reasons(row))


def _size(within: session.Session, rows: points.Rows) -> int:
    return len(within.nodes) if isinstance(rows, slice) else len(rows)
