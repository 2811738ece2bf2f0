"""The policy ``links`` of ``deviceshare``: GPUs of one container have fast links.

A request for part of a GPU gets a GPU in use, the fullest first, so that whole GPUs stay free.
Several GPUs, and the first part of a whole one, are chosen as in ``core.numa.gpu_interconnect``:
the set with the best links, among equals the one that leaves the best remaining set, on the fewest
NUMA nodes. The score relates the choice to the best possible set of all GPUs of the node.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stromboli.scheduler.core.numa import gpu_interconnect, nodes, reports
from stromboli.scheduler.core.plugins.deviceshare import gpu_devices

BEST = 100.0


class GpuLinks(NamedTuple):
    """The links of a node's GPUs: ``pairs`` by index, and the NUMA node of each."""

    pairs: gpu_interconnect.Scores
    numa_nodes: tuple[int, ...]


def links_of(some: Sequence[gpu_devices.Gpu], hardware: nodes.KnownHardware | None) -> GpuLinks:
    """Return the links of these GPUs as reported by the node's agent; none for unknown GPUs."""
    pairs = np.zeros((len(some), len(some)), np.int64)
    numa_nodes = [-1] * len(some)
    if isinstance(hardware, nodes.NodeHardware) and reports.GPU in hardware.ids:
        pool = hardware.hardware.pools[reports.GPU]
        places = {name: place for place, name in enumerate(hardware.ids[reports.GPU])}
        known = [(at, places[gpu.uuid]) for at, gpu in enumerate(some) if gpu.uuid in places]
        for at, place in known:
            numa_nodes[at] = pool.numa_nodes[place]
            for other, there in known if pool.pairs else ():
                pairs[at, other] = pool.pairs[place][there]
    return GpuLinks(pairs, tuple(numa_nodes))


def allocate(
    some: Sequence[gpu_devices.Gpu],
    gpu_request: gpu_devices.GpuRequest,
    owner: gpu_devices.Owner,
    links: GpuLinks,
) -> tuple[gpu_devices.PodAllocation, float] | None:
    """Like ``gpu_devices.allocate``, with the GPUs in the order of their index."""
    allocation: list[tuple[gpu_devices.GpuAllocation, ...]] = []
    score: list[float] = []
    for demand in gpu_request.containers:
        can = {
            at: share
            for at, gpu in enumerate(some)
            if demand.number
            and gpu_request.allows(gpu)
            and (share := gpu.share(demand, gpu_request, owner))
        }
        begun = [at for at in can if some[at].users]
        chosen: tuple[int, ...] | None
        if demand.number == 1 and begun:
            chosen = (max(begun, key=lambda at: (some[at].used_mib, -at)),)
        else:
            chosen = gpu_interconnect.best_gpus(links.pairs, can, demand.number, links.numa_nodes)
        if chosen is None:
            return None
        for at in chosen:
            some[at].put(owner, can[at])
        allocation.append(tuple(can[at] for at in chosen))
        if demand.number:
            score.append(_worth(some, links, chosen))
    return tuple(allocation), sum(score) / len(score)


def _worth(some: Sequence[gpu_devices.Gpu], links: GpuLinks, chosen: tuple[int, ...]) -> float:
    if len(chosen) == 1:
        return BEST if len(some[chosen[0]].users) > 1 else 0.0
    ideal = (
        gpu_interconnect.best_gpus(links.pairs, range(len(some)), len(chosen), links.numa_nodes)
        or chosen
    )
    most = int(links.pairs[np.ix_(ideal, ideal)].sum())
    return BEST * int(links.pairs[np.ix_(chosen, chosen)].sum()) / most if most else 0.0
