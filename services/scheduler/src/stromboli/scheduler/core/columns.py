"""The nodes as columns: what they have, what is taken, and what keeps pods off them.

Arrays are ``resources x nodes``, so that one resource of all nodes lies together. A row exists for
every name that a node or a placed pod mentions: a pod that arrives before its node is parked in
its row. Rows come in any order; ``ranks`` orders them by name, and whoever must choose among
equals chooses by rank.
"""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core import shapes
from stromboli.shared.api import core

Amounts: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

FIRST_ROWS = 64
UNREADABLE = "node(s) could not be read"
"""Our own reason: the node, or a pod on it, is unknown, so nobody can say what is free."""


class Nodes:
    """Rows of nodes. Changing one costs O(resources); a new or lost name also an O(n log n) rank.

    ``allocatable``, ``used``: ``resources x nodes``. ``assumed_used``: ``2 x nodes``, cpu and
    memory as scoring sees them. ``present``: the node is there; ``known``: and it can be read.
    """

    def __init__(self, resources: shapes.Resources) -> None:
        self.resources = resources
        self.rows: dict[str, int] = {}
        self.names: list[str] = []
        self.allocatable: Amounts = np.zeros((8, FIRST_ROWS), np.int64)
        self.used: Amounts = np.zeros((8, FIRST_ROWS), np.int64)
        self.assumed_used: Amounts = np.zeros((2, FIRST_ROWS), np.int64)
        self.present: Mask = np.zeros(FIRST_ROWS, np.bool_)
        self.known: Mask = np.zeros(FIRST_ROWS, np.bool_)
        self.unschedulable: Mask = np.zeros(FIRST_ROWS, np.bool_)
        self.taints_of: npt.NDArray[np.int32] = np.zeros(FIRST_ROWS, np.int32)
        self.taint_sets: list[tuple[core.Taint, ...]] = [()]
        self.placement_version = 0
        """Changes with everything that decides which nodes a pod may run on, resources aside."""
        self._blocked: npt.NDArray[np.int32] = np.zeros(FIRST_ROWS, np.int32)
        self._pods: npt.NDArray[np.int32] = np.zeros(FIRST_ROWS, np.int32)
        self._labels: list[Mapping[str, str]] = []
        self._problems: dict[str, str] = {}
        self._free_rows: list[int] = []
        self._label_codes: dict[str, npt.NDArray[np.int32]] = {}
        self._label_values: dict[str, dict[str, int]] = {}
        self._ranks: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def usable(self) -> Mask:
        """Rows whose free resources are known: the node and every pod on it can be read."""
        size = len(self)
        readable: Mask = self.known[:size] & (self._blocked[:size] == 0)
        return readable

    @property
    def ranks(self) -> npt.NDArray[np.int64]:
        """Each row's place among the names."""
        if self._ranks is None:
            order = sorted(range(len(self)), key=self.names.__getitem__)
            self._ranks = np.empty(len(self), np.int64)
            self._ranks[order] = np.arange(len(self))
        return self._ranks

    @property
    def excluded(self) -> dict[str, str]:
        """Node -> why nothing is placed on it: it, or a pod on it, cannot be read."""
        blocked = {
            self.names[row]: f"{int(self._blocked[row])} pods on it cannot be read"
            for row in np.flatnonzero(self._blocked[: len(self)])
        }
        return blocked | self._problems

    def put(self, node: core.Node) -> None:
        """A node as it is now. One whose amounts cannot be read is excluded, and why is kept."""
        row = self._row(node.metadata.name)
        labels = node.metadata.labels or {}
        taints = node.spec.taints
        allocatable: Mapping[str, int] = {}
        self._problems.pop(node.metadata.name, None)
        try:
            allocatable = shapes.checked(node.status.allocatable or {}, "allocatable")
        except ValueError as error:
            self._problems[node.metadata.name] = str(error)
        columns = self.resources.amounts(allocatable)
        self.fit_resources()
        self.allocatable[:, row] = 0
        for column, amount in columns.items():
            self.allocatable[column, row] = amount
        is_known = node.metadata.name not in self._problems
        before = (
            self.known[row],
            self.unschedulable[row],
            self._labels[row],
            self.taint_sets[self.taints_of[row]],
        )
        if before != (is_known, node.spec.unschedulable, labels, taints):
            self.placement_version += 1
        self.present[row] = True
        self.known[row] = is_known
        self.unschedulable[row] = node.spec.unschedulable
        self._relabel(row, labels)
        if taints not in self.taint_sets:
            self.taint_sets.append(taints)
        self.taints_of[row] = self.taint_sets.index(taints)

    def unknown(self, name: str, reason: str) -> None:
        """The node is there but cannot be read."""
        row = self._row(name)
        self._forget(row)
        self.present[row] = True
        self._problems[name] = reason

    def remove(self, name: str) -> None:
        """The node is gone. Pods that still name it stay parked."""
        self._problems.pop(name, None)
        if name in self.rows:
            row = self.rows[name]
            self._forget(row)
            self.present[row] = False
            self._release(row)

    def take(self, name: str, shape: shapes.Shape) -> None:
        """A pod of this shape sits on the node."""
        self._charge(self._row(name), shape, 1)

    def give_back(self, name: str, shape: shapes.Shape) -> None:
        """It no longer does."""
        row = self.rows[name]
        self._charge(row, shape, -1)
        self._release(row)

    def block(self, name: str) -> None:
        """A pod on the node cannot be read: what is free there is unknown."""
        row = self._row(name)
        self._blocked[row] += 1
        self.placement_version += 1

    def unblock(self, name: str) -> None:
        """It can, or is gone."""
        row = self.rows[name]
        self._blocked[row] -= 1
        self.placement_version += 1
        self._release(row)

    def label_codes(self, key: str) -> tuple[npt.NDArray[np.int32], Mapping[str, int]]:
        """Each row's value of a label as a code (-1 for none), and value -> code.

        The first question for a key costs O(nodes), later ones nothing.
        """
        if key not in self._label_codes:
            self._label_values[key] = {}
            self._label_codes[key] = np.full(self.known.size, -1, np.int32)
            for row, labels in enumerate(self._labels):
                self._encode(key, row, labels)
        return self._label_codes[key][: len(self)], self._label_values[key]

    def fit_resources(self) -> None:
        """Widen the arrays to the resources known by now."""
        short = len(self.resources.names) - self.allocatable.shape[0]
        if short > 0:
            more = ((0, short + 8), (0, 0))
            self.allocatable = np.pad(self.allocatable, more)
            self.used = np.pad(self.used, more)

    def _row(self, name: str) -> int:
        if name in self.rows:
            return self.rows[name]
        self.placement_version += 1
        self._ranks = None
        if self._free_rows:
            row = self._free_rows.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            self._labels.append({})
            if row >= self.known.size:
                self._double()
        self.rows[name] = row
        return row

    def _double(self) -> None:
        more = self.known.size
        self.allocatable = np.pad(self.allocatable, ((0, 0), (0, more)))
        self.used = np.pad(self.used, ((0, 0), (0, more)))
        self.assumed_used = np.pad(self.assumed_used, ((0, 0), (0, more)))
        self.present = np.pad(self.present, (0, more))
        self.known = np.pad(self.known, (0, more))
        self.unschedulable = np.pad(self.unschedulable, (0, more))
        self.taints_of = np.pad(self.taints_of, (0, more))
        self._blocked = np.pad(self._blocked, (0, more))
        self._pods = np.pad(self._pods, (0, more))
        for key, codes in self._label_codes.items():
            self._label_codes[key] = np.pad(codes, (0, more), constant_values=-1)

    def _forget(self, row: int) -> None:
        self.allocatable[:, row] = 0
        self.known[row] = False
        self.unschedulable[row] = False
        self.taints_of[row] = 0
        self._relabel(row, {})
        self.placement_version += 1

    def _release(self, row: int) -> None:
        if self.present[row] or self._pods[row] or self._blocked[row]:
            return
        del self.rows[self.names[row]]
        self.names[row] = ""
        self._free_rows.append(row)
        self._ranks = None

    def _charge(self, row: int, shape: shapes.Shape, sign: int) -> None:
        self.fit_resources()
        for column, amount in shape.amounts.items():
            self.used[column, row] += sign * amount
        self.assumed_used[0, row] += sign * shape.assumed_cpu
        self.assumed_used[1, row] += sign * shape.assumed_memory
        self._pods[row] += sign

    def _relabel(self, row: int, labels: Mapping[str, str]) -> None:
        self._labels[row] = labels
        for key in self._label_codes:
            self._encode(key, row, labels)

    def _encode(self, key: str, row: int, labels: Mapping[str, str]) -> None:
        value = labels.get(key)
        values = self._label_values[key]
        self._label_codes[key][row] = -1 if value is None else values.setdefault(value, len(values))
