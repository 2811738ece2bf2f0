"""Agents' reports of what their pods use, and the records on ``cluster.podusage``.

Pure: reports in, drafts out; time is an argument. A record has the node from the agent's token, so
that a reader believes values only of pods of that node. A report with a value that cannot be true
is rejected as a whole.
"""

import re
from datetime import datetime, timedelta

import msgspec

from stromboli.monitor.core import pod_meter
from stromboli.shared import decoding, envelope, topics
from stromboli.shared.messages import node_usage

LARGEST_BYTES = 256 * 1024
LEAST_APART = timedelta(seconds=2)
"""Least time between two records of a node; agents report every ``pod_meter.SEND_EVERY_S``."""
MOST = 2**50
"""Largest value of a time in milliseconds (36,000 years) and of an amount of memory (1 PiB)."""
LONGEST_ID = 64
LONGEST_NAME = 253 + 1 + 63


class PodUsageReports:
    """When each node reported last."""

    def __init__(self) -> None:
        self._last: dict[str, datetime] = {}

    def accept(
        self, node: str, report: node_usage.PodUsageReport, now: datetime
    ) -> envelope.Draft | None:
        """The draft of a report; None if it is too early after the previous one. A clock that goes
        backwards delays no node."""
        last = self._last.get(node)
        if last is not None and timedelta() <= now - last < LEAST_APART:
            return None
        self._last[node] = now
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
        raise msgspec.DecodeError(f"an id is not of 1 to {LONGEST_ID} printable ASCII characters")
    if any(len(name) > LONGEST_NAME for name in pod_usage_report.unknown_pods):
        raise msgspec.DecodeError(f"a name has more than {LONGEST_NAME} characters")
    for pod in pod_usage_report.pods:
        values = (pod.cpu_ms, pod.max_memory_bytes, pod.gpu_ms, pod.max_gpu_memory_bytes)
        if any(value is not None and not 0 <= value <= MOST for value in values):
            raise msgspec.DecodeError(f"a value of pod {pod.pod_uid} is not between 0 and {MOST}")
    return pod_usage_report


_ID = re.compile(rf"[!-~]{{1,{LONGEST_ID}}}")
_DECODER = decoding.decoder_of(node_usage.PodUsageReport)
