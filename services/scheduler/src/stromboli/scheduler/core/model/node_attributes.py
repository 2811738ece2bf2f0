"""Non-resource attributes of nodes by row: labels, taints, conditions and readability.

Arrays have one entry per row. ``nodes.Nodes`` owns the rows and calls ``reorder_rows``.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.shared.api import core

Mask: TypeAlias = npt.NDArray[np.bool_]
Codes: TypeAlias = npt.NDArray[np.int32]
Sources: TypeAlias = npt.NDArray[np.intp]
"""New row -> old row, -1 for a new node."""

UNREADABLE = "node(s) could not be read"
"""A reason that Kubernetes lacks: the node or a pod on it cannot be decoded, so its free resources
are unknown."""


class NodeAttributes:
    """Labels, taints and readability by row. Changing a row costs O(label keys in use).

    ``placement_version`` changes whenever an attribute changes that affects where pods may run.
    ``taint_sets``: the distinct sets of taints; ``taints_of``: the index of each row's set.

    Sets of taints, and label values, are dropped once no node has them. Controllers write
    timestamps and counters into both, so the number of values over a cluster's life is unbounded.
    """

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.known: Mask = np.zeros(0, np.bool_)
        self.unschedulable: Mask = np.zeros(0, np.bool_)
        self.not_ready: Mask = np.zeros(0, np.bool_)
        self.taints_of: Codes = np.zeros(0, np.int32)
        self.taint_sets: list[tuple[core.Taint, ...]] = [()]
        """The first set is empty and never dropped. A dropped set is replaced by an empty one until
        its index is used again.
        """
        self._taint_codes: dict[tuple[core.Taint, ...], int] = {(): 0}
        self._taint_rows: list[int] = [0]
        """Number of rows of each set; not maintained for the first one."""
        self._free_taint_codes: list[int] = []
        self.placement_version = 0
        self._blocked: Mask = np.zeros(0, np.bool_)
        self._labels: list[Mapping[str, str]] = []
        self._label_codes: dict[str, Codes] = {}
        self._label_values: dict[str, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self.known)

    @property
    def usable(self) -> Mask:
        """Rows whose free resources are known: the node and every pod on it can be decoded."""
        readable: Mask = self.known & ~self._blocked
        return readable

    def put(self, row: int, node: core.Node, *, is_known: bool) -> None:
        """Set the attributes of a row from its node."""
        labels, taints = node.metadata.labels or {}, node.spec.taints
        not_ready = _is_not_ready(node)
        after = (is_known, node.spec.unschedulable, not_ready, labels, taints)
        before = (
            bool(self.known[row]),
            bool(self.unschedulable[row]),
            bool(self.not_ready[row]),
            self._labels[row],
            self.taint_sets[self.taints_of[row]],
        )
        if before == after:
            return
        self.placement_version += 1
        self.known[row] = is_known
        self.unschedulable[row] = node.spec.unschedulable
        self.not_ready[row] = not_ready
        self._labels[row] = labels
        for key in list(self._label_codes):
            self._encode(key, row, labels)
            self._forget_unused(key, labels)
        released = int(self.taints_of[row])
        self.taints_of[row] = self._taint_code(taints)
        self._release_taints(released, 1)

    def block(self, row: int, *, is_blocked: bool) -> None:
        """Set whether an unreadable pod on the node makes its free resources unknown."""
        if bool(self._blocked[row]) is not is_blocked:
            self._blocked[row] = is_blocked
            self.placement_version += 1

    def blocked(self) -> list[int]:
        """Rows of nodes with unreadable pods."""
        rows: list[int] = np.flatnonzero(self._blocked).tolist()
        return rows

    def reorder_rows(self, names: Sequence[str], sources: Sources) -> None:
        """Move rows to a new order; new rows are empty until ``put``."""
        is_new = sources < 0
        gone = np.ones(len(self), np.bool_)
        gone[sources[~is_new]] = False
        for code, rows in enumerate(np.bincount(self.taints_of[gone]).tolist()):
            self._release_taints(code, rows)
        self.placement_version += 1
        self.rows.clear()
        self.rows.update({name: row for row, name in enumerate(names)})
        self.known = reordered(self.known, sources)
        self.unschedulable = reordered(self.unschedulable, sources)
        self.not_ready = reordered(self.not_ready, sources)
        self.taints_of = reordered(self.taints_of, sources)
        self._blocked = reordered(self._blocked, sources)
        self._labels = [{} if at < 0 else self._labels[at] for at in sources.tolist()]
        for key, codes in self._label_codes.items():
            self._label_codes[key] = np.where(is_new, np.int32(-1), reordered(codes, sources))
        for key in list(self._label_codes):
            self._forget_unused(key, {})

    @property
    def keys(self) -> int:
        """Number of label keys with encoded values."""
        return len(self._label_codes)

    def label_codes(self, key: str) -> tuple[Codes, Mapping[str, int]]:
        """Each row's value of a label as a code (-1 for none), and value -> code.

        The first call for a key costs O(nodes), later calls O(1).
        """
        if key not in self._label_codes and not any(key in labels for labels in self._labels):
            return np.full(len(self), -1, np.int32), {}  # not cached: users can name any key
        if key not in self._label_codes:
            self._label_values[key] = {}
            self._label_codes[key] = np.full(len(self), -1, np.int32)
            for row, labels in enumerate(self._labels):
                self._encode(key, row, labels)
        return self._label_codes[key], self._label_values[key]

    def _taint_code(self, taints: tuple[core.Taint, ...]) -> int:
        """The index of a set of taints; counts one more row with this set."""
        code = self._taint_codes.get(taints)
        if code is None and self._free_taint_codes:
            code = self._free_taint_codes.pop()
            self.taint_sets[code] = taints
        elif code is None:
            code = len(self.taint_sets)
            self.taint_sets.append(taints)
            self._taint_rows.append(0)
        self._taint_codes[taints] = code
        self._taint_rows[code] += code > 0
        return code

    def _release_taints(self, code: int, rows: int) -> None:
        """Subtract rows from a set of taints and drop it if no row is left."""
        if not code or not rows:
            return
        self._taint_rows[code] -= rows
        if not self._taint_rows[code]:
            del self._taint_codes[self.taint_sets[code]]
            self.taint_sets[code] = ()
            self._free_taint_codes.append(code)

    def _forget_unused(self, key: str, labels: Mapping[str, str]) -> None:
        """Drop the codes of a key that no node has, or whose values are mostly unused. The next
        ``label_codes`` encodes the key again.
        """
        is_used = key in labels or bool((self._label_codes[key] >= 0).any())
        if not is_used or len(self._label_values[key]) > 2 * len(self) + 16:
            del self._label_codes[key], self._label_values[key]

    def _encode(self, key: str, row: int, labels: Mapping[str, str]) -> None:
        value = labels.get(key)
        values = self._label_values[key]
        self._label_codes[key][row] = -1 if value is None else values.setdefault(value, len(values))


def reordered(array: npt.NDArray[np.generic], sources: Sources) -> npt.NDArray:  # type: ignore[type-arg]  # any entries
    """The array with its last axis in the new order of rows, zeros for new rows."""
    if not array.shape[-1]:
        return np.zeros((*array.shape[:-1], len(sources)), array.dtype)
    result = array[..., sources]
    result[..., sources < 0] = 0
    return result


def _is_not_ready(node: core.Node) -> bool:
    """Whether the node has the condition ``Ready`` and it is not True."""
    return any(each.type == "Ready" and each.status != "True" for each in node.status.conditions)
