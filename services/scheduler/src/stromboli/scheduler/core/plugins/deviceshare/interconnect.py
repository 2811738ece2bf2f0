"""The policy ``links`` of ``deviceshare``: GPUs of one container are linked well.

A share of a GPU comes from one that others use already, the fullest first, so that whole GPUs
stay. Several GPUs, and the first share of a whole one, are chosen as ``core.gpu_links`` does: the
best linked set, of equals the one that leaves the best linked rest, on the fewest NUMA nodes. What
a choice is worth is how near it comes to the best that these GPUs could ever give.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stromboli.scheduler.core.numa import gpu_interconnect, nodes, reports
from stromboli.scheduler.core.plugins.deviceshare import gpu_devices

BEST = 100.0


class GpuLinks(NamedTuple):
    """How a node's GPUs are linked: ``pairs`` by their places, and each one's NUMA node."""

    pairs: gpu_interconnect.Scores
    numa_nodes: tuple[int, ...]


def links_of(some: Sequence[gpu_devices.Gpu], told: nodes.KnownHardware | None) -> GpuLinks:
    """The links of these GPUs as the node's agent tells them; none of those it does not know."""
    pairs = np.zeros((len(some), len(some)), np.int64)
    numa_nodes = [-1] * len(some)
    if isinstance(told, nodes.NodeHardware) and reports.GPU in told.ids:
        pool = told.hardware.pools[reports.GPU]
        places = {name: place for place, name in enumerate(told.ids[reports.GPU])}
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
    """As ``GPUs.fit``, with the GPUs in the order of their places."""
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
