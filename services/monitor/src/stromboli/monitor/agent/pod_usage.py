"""Measures what the node's pods use, and reports it."""

import logging
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from stromboli.monitor.agent import reporting
from stromboli.monitor.agent.pod_cgroups import PodCgroups
from stromboli.monitor.core import gpu_holders, pod_meter
from stromboli.shared import decoding, errors
from stromboli.shared.messages import base, node_topology, node_usage

log = logging.getLogger("stromboli.agent")
GPUS_EVERY_S = 10.0
"""Seconds between two readings of GPUs; each costs a millisecond per GPU."""
_ANSWER = decoding.decoder_of(node_usage.PodUids)


class PodUsageReporter:
    """Reads pods when they are due, and sends their values. ``root``: the mounted
    ``/sys/fs/cgroup``. ``allocations``: the last known allocations of the kubelet. ``gpus``: reads
    some GPUs by uuid."""

    def __init__(
        self,
        root: Path,
        monitor: reporting.MonitorClient,
        allocations: Callable[[], tuple[node_topology.ExclusiveAllocation, ...]],
        gpus: Callable[[frozenset[str]], Mapping[str, pod_meter.GpuReading]],
    ) -> None:
        self._cgroups = PodCgroups(root)
        self._monitor = monitor
        self._allocations = allocations
        self._gpus = gpus
        self._meter = pod_meter.PodMeter()
        self._sampler = uuid.uuid4().hex
        self._uids: dict[str, str] = {}
        """Names of the pods that hold GPUs -> their uids."""
        self._gpus_at_s = float("-inf")
        self._trouble = ""

    def step(self, now_s: float) -> None:
        """Execute the steps that are due. A failed report is logged once, and its values are sent
        with the next one."""
        present = self._cgroups.find()
        due = self._meter.observe(present, now_s)
        readings = {uid: reading for uid in due if (reading := self._cgroups.read(uid)) is not None}
        self._meter.read(readings, now_s)
        unknown = self._read_gpus(frozenset(present), now_s)
        pods = self._meter.due(now_s)
        if not pods and not unknown:
            return
        report = node_usage.PodUsageReport(
            sampler=self._sampler, pods=pods, unknown_pods=tuple(sorted(unknown))
        )
        self._send(report, frozenset(present), now_s)

    def close(self, now_s: float) -> None:
        """Send what is not reported yet: the agent stops."""
        self._meter.close()
        pods = self._meter.due(now_s)
        if pods:
            report = node_usage.PodUsageReport(sampler=self._sampler, pods=pods)
            self._send(report, frozenset(), now_s)

    def _read_gpus(self, present: frozenset[str], now_s: float) -> frozenset[str]:
        """Read the GPUs of pods; returns the names of pods whose uid is not known."""
        if now_s - self._gpus_at_s < GPUS_EVERY_S:
            return frozenset()
        self._gpus_at_s = now_s
        gpus_by_pod = gpu_holders.whole_gpus(self._allocations())
        self._uids = {
            name: uid for name, uid in self._uids.items() if name in gpus_by_pod and uid in present
        }
        gpus_by_uid = {
            self._uids[name]: gpus for name, gpus in gpus_by_pod.items() if name in self._uids
        }
        wanted = frozenset(gpu for gpus in gpus_by_uid.values() for gpu in gpus)
        if wanted:
            read = self._gpus(wanted)
            self._meter.read_gpus(gpu_holders.readings(gpus_by_uid, read), now_s)
        unknown = sorted(gpus_by_pod.keys() - self._uids.keys())
        return frozenset(unknown[: pod_meter.MOST_UNKNOWN])

    def _send(
        self, report: node_usage.PodUsageReport, present: frozenset[str], now_s: float
    ) -> None:
        self._meter.sent(now_s)
        try:
            answer = decoding.decode(_ANSWER, self._monitor.report_pod_usage(base.encode(report)))
        except (errors.ExternalError, OSError, msgspec.DecodeError) as error:
            if str(error) != self._trouble:
                log.warning("usage of pods not sent: %s", error)
            self._trouble = str(error)
            return
        self._trouble = ""
        self._meter.acknowledged(report.pods, now_s)
        # A pod of another node may have this name: only pods with a cgroup here count.
        self._uids |= {name: uid for name, uid in answer.uids.items() if uid in present}
