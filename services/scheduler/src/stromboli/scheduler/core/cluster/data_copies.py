"""Copies of data sets on nodes, by content key, from the reports of the nodes' caches.

A report that cannot be read, or that is too old, is unknown: its node has neither known copies nor
a known capacity.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from stromboli.shared.messages import data


class DataCopies:
    """The newest report of each node. An update costs O(copies of the node)."""

    def __init__(self) -> None:
        self.reports: dict[str, data.DataObserved] = {}
        """Node -> its report, if it can be relied on."""
        self._copies: dict[str, dict[str, data.DataCopy]] = {}
        """Content key -> node -> the copy."""
        self._in_use: dict[str, tuple[data.DataCopy, ...]] = {}
        """Node -> the copies that pods use there."""
        self._sizes: dict[str, Counter[int]] = {}
        """Content key -> sizes of complete copies, with the number of nodes that report them."""

    def put(self, node: str, report: data.DataObserved | None) -> bool:
        """Replace the report of a node; None for one that cannot be read. Returns whether decisions
        may differ: progress of a fetch and times of use do not matter."""
        before = self.reports.pop(node, None)
        self._in_use.pop(node, None)
        for copy in _by_key(before).values():
            self._remove(node, copy)
        after = None if report is None or report.silent_since is not None else report
        if after is not None:
            self.reports[node] = after
            used = tuple(copy for copy in after.copies if copy.in_use)
            if used:
                self._in_use[node] = used
            for copy in _by_key(after).values():
                self._copies.setdefault(copy.key, {})[node] = copy
                if copy.state == "Complete":
                    self._sizes.setdefault(copy.key, Counter())[copy.bytes] += 1
        return _essence(before) != _essence(after)

    def _remove(self, node: str, copy: data.DataCopy) -> None:
        del self._copies[copy.key][node]
        if not self._copies[copy.key]:
            del self._copies[copy.key]
        if copy.state == "Complete":
            sizes = self._sizes[copy.key] = self._sizes[copy.key] - Counter((copy.bytes,))
            if not sizes:
                del self._sizes[copy.key]

    def of(self, key: str) -> Mapping[str, data.DataCopy]:
        """Node -> its copy, in any state."""
        return self._copies.get(key, {})

    def size(self, key: str) -> int:
        """The size in bytes that most complete copies of the content have; 0 without such
        copies."""
        sizes = self._sizes.get(key)
        return max(sizes, key=lambda size: (sizes[size], size)) if sizes else 0

    def in_use(self) -> Iterator[tuple[str, data.DataCopy]]:
        """All copies that pods use, with their nodes. O(copies in use)."""
        for node, copies in self._in_use.items():
            for copy in copies:
                yield node, copy


def _by_key(report: data.DataObserved | None) -> dict[str, data.DataCopy]:
    """The copies of a report; of two copies with the same key, the last one."""
    return {} if report is None else {copy.key: copy for copy in report.copies}


def _essence(report: data.DataObserved | None) -> object:
    """The fields of a report that decisions depend on."""
    if report is None:
        return None
    copies = tuple((each.key, each.state, each.bytes, each.in_use) for each in report.copies)
    return report.capacity_bytes, copies
