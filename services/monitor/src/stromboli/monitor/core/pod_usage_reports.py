"""Agents' reports of what their pods use, and the records on ``cluster.podusage``.

Pure: reports in, drafts out; time is an argument. A record has the node from the agent's token, so
that a reader believes values only of pods of that node. A report with a value that cannot be true
is rejected as a whole.
"""

import re
from datetime import datetime

import msgspec

from stromboli.monitor.core import pod_meter
from stromboli.shared import decoding, envelope, topics
from stromboli.shared.messages import node_usage
from stromboli.shared.token_buckets import TokenBuckets

LARGEST_BYTES = 256 * 1024
PODS_PER_S, MOST_PODS_AT_ONCE = 4.0, float(pod_meter.MOST_ENDED)
"""How many pods a node may report, per second, and the burst: the pods that its agent keeps while
the monitor is unavailable. The history keeps a row for each pod, so a compromised agent could
otherwise add hundreds per second. An agent that has to wait skips reports of running pods."""
LEAST_APART_S = 2.0
"""Minimum time between two records of a node; agents report every ``pod_meter.SEND_EVERY_S``."""
MOST = 2**50
"""Largest value of a time in milliseconds (36,000 years) and of an amount of memory (1 PiB)."""
LONGEST_ID = 64
LONGEST_NAME = 253 + 1 + 63


class PodUsageReports:
    """When each node reported last, and how many pods. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._last_s: dict[str, float] = {}
        self._pods = TokenBuckets(PODS_PER_S, MOST_PODS_AT_ONCE)

    def accept(
        self, node: str, report: node_usage.PodUsageReport, now: datetime, now_s: float
    ) -> envelope.Draft | None:
        """The draft of a report; None if it is too early after the previous ones. ``now``: the time
        of the record."""
        is_early = now_s - self._last_s.get(node, -LEAST_APART_S) < LEAST_APART_S
        if is_early or self._pods.wait_s(node, now_s):
            return None
        self._last_s[node] = now_s
        self._pods.spend(node, len(report.pods), now_s)
        measured = node_usage.PodUsageMeasured(
            node=node, at=now, sampler=report.sampler, pods=report.pods
        )
        return envelope.Draft(topic=topics.POD_USAGE, key=node, message=measured, time=now)


def read(body: bytes) -> node_usage.PodUsageReport:
    """Decode an agent's report. Raises msgspec.DecodeError, also for values out of range."""
    pod_usage_report = decoding.decode(_DECODER, body)
    if len(pod_usage_report.pods) > pod_meter.MOST_PODS:
        raise msgspec.DecodeError(
            f"it has {len(pod_usage_report.pods)} pods, at most {pod_meter.MOST_PODS} are allowed"
        )
    if len(pod_usage_report.unknown_pods) > pod_meter.MOST_UNKNOWN:
        most = pod_meter.MOST_UNKNOWN
        raise msgspec.DecodeError(f"it requests the uids of more than {most} pods")
    names = [
        pod_usage_report.sampler,
        *(it for pod in pod_usage_report.pods for it in (pod.pod_uid, pod.counter)),
    ]
    if any(not _ID.fullmatch(name) for name in names):
        raise msgspec.DecodeError(f"an id must have 1 to {LONGEST_ID} printable ASCII characters")
    if any(len(name) > LONGEST_NAME for name in pod_usage_report.unknown_pods):
        raise msgspec.DecodeError(f"a name has more than {LONGEST_NAME} characters")
    for pod in pod_usage_report.pods:
        values = (pod.cpu_ms, pod.max_memory_bytes, pod.gpu_ms, pod.max_gpu_memory_bytes)
        if any(value is not None and not 0 <= value <= MOST for value in values):
            raise msgspec.DecodeError(f"a value of pod {pod.pod_uid} is not between 0 and {MOST}")
    return pod_usage_report


_ID = re.compile(rf"[!-~]{{1,{LONGEST_ID}}}")
_DECODER = decoding.decoder_of(node_usage.PodUsageReport)
