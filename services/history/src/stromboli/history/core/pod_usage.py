"""What attempts have used, from the measurements of node agents. Pure.

Measurements come in any order, repeatedly, and before or after the events of their pod:

1. A measurement is combined with the row of its pod and node: the maximum of each counter, and of
   each amount of memory. Order and repetition of measurements therefore change nothing.
2. A pod gets a new counter of CPU time after its node restarts, and a new counter of GPU time after
   the agent restarts: its usage is the sum of its counters. No value ever decreases.
3. An attempt takes the values of the row of its own node: the agent of another node cannot report
   for it.

An attempt without a row has unknown values, never zero.
"""

import msgspec

from stromboli.history.core.rows import AttemptRow, PodUsageRow, Rows, micros, text, whole
from stromboli.shared import decoding
from stromboli.shared.messages import node_usage

MOST_COUNTERS = 64
"""Maximum counters of a pod that are summed: with more, its node has restarted 64 times."""


class Counters(msgspec.Struct, frozen=True):
    """Counter -> its highest value, in milliseconds."""

    cpu: dict[str, int] = {}
    gpu: dict[str, int] = {}


_COUNTERS = decoding.decoder_of(Counters)


def measure(rows: Rows, message: node_usage.PodUsageMeasured) -> None:
    """Apply a record with measurements to the rows of its pods and to their attempts."""
    for pod in message.pods:
        key = text(pod.pod_uid), text(message.node)
        row = rows.pod_usage.get(key)
        if row is None:
            row = rows.pod_usage[key] = PodUsageRow(*key)
        _combine(row, pod, text(message.sampler))
        row.at = max(row.at, micros(message.at))
        attempt = rows.attempts.get(key[0])
        if attempt is not None and attempt.node == row.node:
            _apply(attempt, row)


def measure_attempt(rows: Rows, attempt: AttemptRow) -> None:
    """Apply the measurements that were read before the attempt's node was known."""
    row = rows.pod_usage.get((attempt.pod_uid, attempt.node))
    if row is not None:
        _apply(attempt, row)


def _combine(row: PodUsageRow, pod: node_usage.PodUsage, sampler: str) -> None:
    before = _COUNTERS.decode(row.counters)
    after = Counters(
        cpu=_raised(before.cpu, text(pod.counter), pod.cpu_ms),
        gpu=before.gpu if pod.gpu_ms is None else _raised(before.gpu, sampler, pod.gpu_ms),
    )
    if after != before:
        row.counters = msgspec.json.encode(after, order="deterministic").decode()
    row.max_memory = max(row.max_memory, whole(pod.max_memory_bytes))
    if pod.max_gpu_memory_bytes is not None:
        row.max_gpu_memory = max(row.max_gpu_memory or 0, whole(pod.max_gpu_memory_bytes))


def _raised(counters: dict[str, int], name: str, value: int) -> dict[str, int]:
    known = counters.get(name)
    if known is None and len(counters) >= MOST_COUNTERS:
        return counters
    return counters | {name: max(known or 0, value, 0)}


def _apply(attempt: AttemptRow, row: PodUsageRow) -> None:
    counters = _COUNTERS.decode(row.counters)
    attempt.used_cpu = max(attempt.used_cpu or 0, whole(sum(counters.cpu.values())))
    attempt.max_memory = max(attempt.max_memory or 0, row.max_memory)
    if counters.gpu:
        attempt.used_gpu = max(attempt.used_gpu or 0, whole(sum(counters.gpu.values())))
    if row.max_gpu_memory is not None:
        attempt.max_gpu_memory = max(attempt.max_gpu_memory or 0, row.max_gpu_memory)
