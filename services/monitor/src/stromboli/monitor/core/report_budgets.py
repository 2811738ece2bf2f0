"""How much the agent of a node may publish: bytes per second, with a burst. Pure.

Each changed report of hardware or of a data cache becomes a record, and ``cluster.changes`` keeps a
copy of it for two weeks. An agent that alternates between two reports of megabytes would fill the
disks of the brokers. Unchanged reports cost nothing.

A node may spend more than is left of its budget, once; then its reports are refused until the debt
is paid.
"""

from stromboli.shared.token_buckets import TokenBuckets

BYTES_PER_S = 256 * 1024
"""A machine of 512 CPUs has a report of 60 KB, and reports allocations once per second at most."""
BURST_BYTES = 64 * 1024 * 1024
"""A data cache with 4096 copies has a report of 1 MB, which changes whenever a fetch ends."""
LEAST_BYTES = 128 * 1024
"""Cost of a smaller record: two per second, since the history may keep a row of each."""


class ReportBudgets:
    """The spent budgets of nodes. Times are seconds of a monotonic clock, as arguments."""

    def __init__(
        self,
        bytes_per_s: float = BYTES_PER_S,
        burst_bytes: float = BURST_BYTES,
        least_bytes: int = LEAST_BYTES,
    ) -> None:
        self._least_bytes = least_bytes
        self._buckets = TokenBuckets(bytes_per_s, burst_bytes)

    def __len__(self) -> int:
        """The number of nodes whose budget may not be full."""
        return len(self._buckets)

    def wait_s(self, node: str, now_s: float) -> float:
        """Seconds until the node may publish again; 0 if it may now."""
        return self._buckets.wait_s(node, now_s)

    def spend(self, node: str, size: int, now_s: float) -> None:
        """Count a published report."""
        self._buckets.spend(node, max(size, self._least_bytes), now_s)
