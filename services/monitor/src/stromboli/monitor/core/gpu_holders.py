"""Which pod holds which whole GPU. Pure.

The driver reports the load of a GPU, not of a process: mapping processes to pods would need the
processes of the host. So the load of a GPU counts for the pod that holds it alone. Shared GPUs, MIG
instances and virtual GPUs are not measured.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from stromboli.monitor.core import pod_meter
from stromboli.shared.messages import node_topology

PREFIX = "GPU-"
"""Prefix of the uuids of whole GPUs; uuids of MIG instances begin with MIG-."""
REPLICA = "::"
"""Separates the uuid of a GPU from the number of a share (time-slicing)."""


def whole_gpus(
    allocations: Iterable[node_topology.ExclusiveAllocation],
) -> dict[str, frozenset[str]]:
    """Name (namespace/name) of a pod -> its GPUs, for pods that hold only unshared whole GPUs."""
    gpus_by_pod: dict[str, set[str]] = {}
    for each in allocations:
        ids = {it for device in each.devices for it in device.ids if it.startswith(PREFIX)}
        if ids and each.pod:
            gpus_by_pod.setdefault(f"{each.namespace}/{each.pod}", set()).update(ids)
    holders = Counter(gpu for gpus in gpus_by_pod.values() for gpu in gpus)
    return {
        name: frozenset(gpus)
        for name, gpus in gpus_by_pod.items()
        if all(holders[gpu] == 1 and REPLICA not in gpu for gpu in gpus)
    }


def readings(
    gpus_by_pod: Mapping[str, frozenset[str]], read: Mapping[str, pod_meter.GpuReading]
) -> dict[str, pod_meter.GpuReading]:
    """Pod -> the sum of the readings of its GPUs, for pods whose GPUs could all be read."""
    return {
        uid: pod_meter.GpuReading(
            busy=_sum([read[gpu].busy for gpu in gpus]),
            memory_bytes=sum(read[gpu].memory_bytes for gpu in gpus),
        )
        for uid, gpus in gpus_by_pod.items()
        if gpus <= read.keys()
    }


def _sum(shares: list[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return sum(known) if len(known) == len(shares) else None
