"""What the pods of a node use: when each is read, and when it is reported.

Pure: readings in, reports out; time is an argument. Values only grow: CPU time is read from a
counter, memory is the maximum of all readings, GPU time is added up.

1. A pod is read at intervals of a tenth of its age, at least 1 s and at most 10 s. Its usage after
   the last reading is missing, so a pod that lived for less than a second may have no values.
2. A running pod is reported at intervals of a quarter of its age, at least 30 s and at most 10
   minutes.
3. A pod that has ended is reported with its last values until the monitor has acknowledged them.
4. Two reports are at least ``SEND_EVERY_S`` apart and have at most ``MOST_PODS`` pods, those that
   have ended first. While the monitor is unavailable, the last ``MOST_ENDED`` ended pods are kept.

A step costs O(pods of the node).
"""

from collections.abc import Collection, Mapping

import msgspec

from stromboli.shared.messages import node_usage

READ_EVERY_S, READ_SHARE = (1.0, 10.0), 0.1
"""The interval between readings of a pod: its limits, and the share of the pod's age."""
REPORT_EVERY_S, REPORT_SHARE = (30.0, 600.0), 0.25
"""The same for reports: ten thousand nodes with ten long-running pods each are 170 pods a
second."""
SEND_EVERY_S = 10.0
MOST_PODS = 500
"""Pods in a report, about 100 KB; kubelets run 110 pods unless they are set otherwise."""
MOST_ENDED = 5000
MOST_UNKNOWN = 64
"""Maximum number of pods whose uids a report asks the monitor for."""


class Reading(msgspec.Struct, frozen=True):
    """The values of a pod now: see ``node_usage.PodUsage``. ``memory_bytes``: since the last
    reading, the highest known one."""

    counter: str
    cpu_ms: int
    memory_bytes: int


class GpuReading(msgspec.Struct, frozen=True):
    """The GPUs that a pod holds now. ``busy``: the sum of the shares of time, 0 to 1 for each GPU,
    in which they are busy; None if a GPU does not report it. ``memory_bytes``: in use on all of
    them."""

    busy: float | None
    memory_bytes: int


class _Pod(msgspec.Struct):
    seen_at_s: float
    read_at_s: float
    reported_at_s: float
    usage: node_usage.PodUsage | None = None
    gpu_at_s: float | None = None
    gpu_ms: float = 0.0
    is_over: bool = False
    is_new: bool = False
    """Whether its values have changed since the last report."""


class PodMeter:
    """The pods of a node by uid. ``send_every_s``: the minimum time between two reports."""

    def __init__(self, send_every_s: float = SEND_EVERY_S) -> None:
        self._send_every_s = send_every_s
        self._pods: dict[str, _Pod] = {}
        self._sent_at_s = float("-inf")
        self._is_closing = False

    def __len__(self) -> int:
        """The number of pods that run or are not reported yet."""
        return len(self._pods)

    def close(self) -> None:
        """Make everything due that is not reported: there will be no further readings."""
        self._is_closing, self._sent_at_s = True, float("-inf")

    def observe(self, present: Collection[str], now_s: float) -> list[str]:
        """Update the set of present pods; returns those that are due to be read."""
        for uid in present:
            if uid not in self._pods:
                self._pods[uid] = _Pod(now_s, float("-inf"), now_s)
            self._pods[uid].is_over = False
        for uid in self._pods.keys() - set(present):
            self._pods[uid].is_over = True
            if not self._pods[uid].is_new:
                del self._pods[uid]  # everything that is known of it was reported
        ended = [uid for uid, pod in self._pods.items() if pod.is_over]
        for uid in ended[: max(0, len(ended) - MOST_ENDED)]:
            del self._pods[uid]
        return [
            uid
            for uid, pod in self._pods.items()
            if not pod.is_over
            and now_s - pod.read_at_s >= _interval(pod, READ_EVERY_S, READ_SHARE, now_s)
        ]

    def read(self, readings: Mapping[str, Reading], now_s: float) -> None:
        """Apply readings of pods by uid."""
        for uid, reading in readings.items():
            pod = self._pods.setdefault(uid, _Pod(now_s, now_s, now_s))
            pod.read_at_s = now_s
            before = pod.usage
            if before is not None and before.counter == reading.counter:
                cpu_ms = max(before.cpu_ms, reading.cpu_ms)
            else:
                cpu_ms = reading.cpu_ms
            memory = max(0 if before is None else before.max_memory_bytes, reading.memory_bytes)
            usage = node_usage.PodUsage(
                pod_uid=uid,
                counter=reading.counter,
                cpu_ms=cpu_ms,
                max_memory_bytes=memory,
                gpu_ms=None if before is None else before.gpu_ms,
                max_gpu_memory_bytes=None if before is None else before.max_gpu_memory_bytes,
            )
            pod.is_new = pod.is_new or usage != before
            pod.usage = usage

    def read_gpus(self, readings: Mapping[str, GpuReading], now_s: float) -> None:
        """Apply readings of the GPUs of pods that have been read. The load of a reading counts for
        the time since the reading before it; the first reading of a pod's GPUs adds no time."""
        for uid, reading in readings.items():
            pod = self._pods.get(uid)
            if pod is None or pod.usage is None or pod.is_over:
                continue
            since_s, pod.gpu_at_s = pod.gpu_at_s, now_s
            if reading.busy is not None:
                pod.gpu_ms += reading.busy * 1000 * (0.0 if since_s is None else now_s - since_s)
            memory = max(pod.usage.max_gpu_memory_bytes or 0, reading.memory_bytes)
            usage = msgspec.structs.replace(
                pod.usage,
                gpu_ms=pod.usage.gpu_ms if reading.busy is None else round(pod.gpu_ms),
                max_gpu_memory_bytes=memory,
            )
            pod.is_new = pod.is_new or usage != pod.usage
            pod.usage = usage

    def due(self, now_s: float) -> tuple[node_usage.PodUsage, ...]:
        """The pods to report now; empty if none is due."""
        if now_s - self._sent_at_s < self._send_every_s:
            return ()
        due = [
            (not pod.is_over, pod.reported_at_s, uid, pod.usage)
            for uid, pod in self._pods.items()
            if pod.usage is not None
            and pod.is_new
            and (
                pod.is_over
                or self._is_closing
                or now_s - pod.reported_at_s >= _interval(pod, REPORT_EVERY_S, REPORT_SHARE, now_s)
            )
        ]
        return tuple(usage for *_, usage in sorted(due, key=lambda it: it[:3])[:MOST_PODS])

    def sent(self, now_s: float) -> None:
        """Record an attempt to report."""
        self._sent_at_s = now_s

    def acknowledged(self, reported: Collection[node_usage.PodUsage], now_s: float) -> None:
        """Record that the monitor has these values."""
        for usage in reported:
            pod = self._pods.get(usage.pod_uid)
            if pod is None:
                continue
            pod.reported_at_s = now_s
            pod.is_new = pod.usage != usage
            if pod.is_over and not pod.is_new:
                del self._pods[usage.pod_uid]


def _interval(pod: _Pod, limits: tuple[float, float], share: float, now_s: float) -> float:
    least, most = limits
    return min(max((now_s - pod.seen_at_s) * share, least), most)
