"""How much the agent of a node may publish: bytes per second, with a burst. Pure.

Each changed report of hardware or of a data cache becomes a record, and ``cluster.changes`` keeps a
copy of it for two weeks. An agent that alternates between two reports of megabytes would fill the
disks of the brokers. Unchanged reports cost nothing.

A node may spend more than is left of its budget, once; then its reports are refused until the debt
is paid. A full budget is the same as none, so memory is bounded by the nodes that reported lately.
"""

BYTES_PER_S = 256 * 1024
"""A machine of 512 CPUs has a report of 60 KB, and reports allocations once per second at most."""
BURST_BYTES = 64 * 1024 * 1024
"""A data cache with 4096 copies has a report of 1 MB, which changes whenever a fetch ends."""
LEAST_BYTES = 128 * 1024
"""Cost of a smaller record: two per second, since the history may keep a row of each."""
TRIM_FROM = 1_000
"""Nodes that are remembered before any is dropped."""


class ReportBudgets:
    """The spent budgets of nodes. Times are seconds of a monotonic clock, as arguments."""

    def __init__(
        self,
        bytes_per_s: float = BYTES_PER_S,
        burst_bytes: float = BURST_BYTES,
        least_bytes: int = LEAST_BYTES,
    ) -> None:
        self._least_bytes = least_bytes
        self._bytes_per_s = bytes_per_s
        self._burst_bytes = burst_bytes
        self._spent: dict[str, tuple[float, float]] = {}
        """Node -> bytes spent and not yet regained, and the time of that."""
        self._trim_at = TRIM_FROM

    def __len__(self) -> int:
        """The number of nodes whose budget may not be full."""
        return len(self._spent)

    def wait_s(self, node: str, now_s: float) -> float:
        """Seconds until the node may publish again; 0 if it may now."""
        return max(0.0, self._left_to_regain(node, now_s) - self._burst_bytes) / self._bytes_per_s

    def spend(self, node: str, size: int, now_s: float) -> None:
        """Count a published report. O(1), and O(nodes) when many budgets may be full."""
        spent = self._left_to_regain(node, now_s)
        self._spent[node] = spent + max(size, self._least_bytes), now_s
        if len(self._spent) > self._trim_at:
            self._spent = {
                each: known
                for each, known in self._spent.items()
                if self._left_to_regain(each, now_s) > 0
            }
            self._trim_at = max(TRIM_FROM, 2 * len(self._spent))

    def _left_to_regain(self, node: str, now_s: float) -> float:
        spent, since_s = self._spent.get(node, (0.0, now_s))
        return max(0.0, spent - (now_s - since_s) * self._bytes_per_s)
