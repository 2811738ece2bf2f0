"""A session's scratch copy of the nodes, on which gangs are placed in trials.

``place`` puts one task of a shape on its best node, ``undo`` takes back a trial. A shape is asked
over all nodes once (``View``); after that only rows that changed since are asked again, so a
placement costs one argmax and one row. Best is the highest score, among equals the first name:
both are packed into one integer, so that the argmax is unique.
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from stromboli.scheduler.core import columns, constraints, scores, shapes, state

POD_COUNT = "node(s) pod number exceeded"
_NAME_BITS = 32
"""Room for ranks below the score in one 64-bit integer."""
_ONE_BY_ONE = 32
"""Up to so many changed rows are asked singly: 2 us each, against some 50 us for any number."""


class View(msgspec.Struct, eq=False):
    """One shape's wishes over all nodes.

    ``wishes``: score and name rank of each row, -1 where it does not fit; ``seen``: the part of the
    board's journal that they know of.
    """

    checked: constraints.Checked
    balanced: tuple[int, ...]
    asked: tuple[tuple[int, int], ...]
    wishes: columns.Amounts
    seen: int


class Board:
    """What is free as a session goes on. Copying costs O(resources x nodes) once a session."""

    def __init__(self, picture: state.State) -> None:
        nodes = picture.nodes
        size = len(nodes)
        self._nodes = nodes
        self._checks = picture.checks
        self._usable = nodes.usable
        self._allocatable = nodes.allocatable[:, :size]
        self._idle = self._allocatable - nodes.used[:, :size]
        self._assumed_used = nodes.assumed_used[:, :size].copy()
        self._last_first = size - nodes.ranks
        self._views: dict[shapes.Shape, View] = {}
        self._journal: list[int] = []

    def place(self, shape: shapes.Shape) -> int:
        """Place one task on its best node; the row, or -1 if it fits nowhere."""
        view = self._view(shape)
        if not view.wishes.size:
            return -1
        row = int(view.wishes.argmax())
        if view.wishes[row] < 0:
            return -1
        self._charge(row, shape, 1)
        return row

    def undo(self, placed: Iterable[tuple[shapes.Shape, int]]) -> None:
        """Take back placements."""
        for shape, row in placed:
            self._charge(row, shape, -1)

    def name(self, row: int) -> str:
        """The node of a row."""
        return self._nodes.names[row]

    def refusals(self, shape: shapes.Shape) -> dict[str, int]:
        """Reason -> number of nodes that do not take the shape now for it, resources asked first.

        O(resources x nodes).
        """
        undecided = self._nodes.present[: len(self._nodes)] & self._usable
        counts = {columns.UNREADABLE: int((self._nodes.present[: len(undecided)]).sum())}
        counts[columns.UNREADABLE] -= int(undecided.sum())
        for column, reason in self._resource_reasons(shape):
            short = undecided & (self._idle[column] < shape.amounts[column])
            counts[reason] = int(short.sum())
            undecided &= ~short
        for reason, passed in self._checks.of(shape).checks:
            counts[reason] = counts.get(reason, 0) + int((undecided & ~passed).sum())
            undecided &= passed
        return {reason: count for reason, count in counts.items() if count}

    def free_and_total(self, resource: str) -> tuple[int, int]:
        """Free and allocatable amount of a resource, summed over the nodes that can be read."""
        column = self._nodes.resources.known(resource)
        if column is None:
            return 0, 0
        free = np.maximum(self._idle[column], 0)
        return (
            int(free[self._usable].sum()),
            int(self._allocatable[column][self._usable].sum()),
        )

    def used_and_total(self, resource: str) -> tuple[int, int]:
        """Taken and allocatable amount of a resource, summed over the nodes that can be read."""
        column = self._nodes.resources.known(resource)
        if column is None:
            return 0, 0
        total = int(self._allocatable[column][self._usable].sum())
        return total - int(self._idle[column][self._usable].sum()), total

    def _resource_reasons(self, shape: shapes.Shape) -> list[tuple[int, str]]:
        """cpu, memory, then the others by name: the first that is short is the reason."""
        names = self._nodes.resources.names
        others = sorted(set(shape.amounts) - {shapes.CPU, shapes.MEMORY}, key=names.__getitem__)
        return [
            (column, POD_COUNT if column == shapes.PODS else f"Insufficient {names[column]}")
            for column in (shapes.CPU, shapes.MEMORY, *others)
            if column in (shapes.CPU, shapes.MEMORY) or shape.amounts[column]
        ]

    def _charge(self, row: int, shape: shapes.Shape, sign: int) -> None:
        for column, amount in shape.amounts.items():
            self._idle[column, row] -= sign * amount
        self._assumed_used[0, row] += sign * shape.assumed_cpu
        self._assumed_used[1, row] += sign * shape.assumed_memory
        self._journal.append(row)

    def _view(self, shape: shapes.Shape) -> View:
        view = self._views.get(shape)
        if view is None:
            view = self._views[shape] = self._ask_all(shape)
        elif view.seen < len(self._journal):
            changed = set(self._journal[view.seen :])
            view.seen = len(self._journal)
            if len(changed) <= _ONE_BY_ONE:
                for row in changed:
                    view.wishes[row] = self._wish(shape, view, row)
            else:
                rows = np.fromiter(changed, np.int64, len(changed))
                view.wishes[rows] = self._wishes(shape, view, rows)
        return view

    def _ask_all(self, shape: shapes.Shape) -> View:
        view = View(
            checked=self._checks.of(shape),
            balanced=scores.balanced_columns(shape, self._nodes.resources),
            asked=tuple(
                (column, amount)
                for column, amount in shape.amounts.items()
                if amount or column in (shapes.CPU, shapes.MEMORY)
            ),
            wishes=np.empty(0, np.int64),
            seen=len(self._journal),
        )
        view.wishes = self._wishes(shape, view, slice(None))
        return view

    def _wishes(
        self, shape: shapes.Shape, view: View, rows: slice | columns.Amounts
    ) -> columns.Amounts:
        idle = self._idle[:, rows]
        fits = view.checked.passed[rows].copy()
        for column, amount in view.asked:
            fits &= idle[column] >= amount
        score = scores.of_nodes(
            shape,
            view.balanced,
            self._allocatable[:, rows],
            idle,
            self._assumed_used[:, rows],
        )
        packed: columns.Amounts = np.where(
            fits, (score << _NAME_BITS) | self._last_first[rows], np.int64(-1)
        )
        return packed

    def _wish(self, shape: shapes.Shape, view: View, row: int) -> int:
        if not view.checked.passed[row]:
            return -1
        idle = self._idle[:, row].tolist()
        for column, amount in view.asked:
            if idle[column] < amount:
                return -1
        score = scores.of_node(
            shape,
            view.balanced,
            self._allocatable[:, row].tolist(),
            idle,
            self._assumed_used[:, row].tolist(),
        )
        return (score << _NAME_BITS) | int(self._last_first[row])
