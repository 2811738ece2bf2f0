"""The placement rules for nodes and GPUs, by name."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from stromboli.scheduler.core.packing import arrivals, trace

RANDOM, DOT_PRODUCT, GPU_PACKING, GPU_CLUSTERING, BEST_FIT, FGD = range(6)
STRANDED_TIES, STRANDED_SUM = 6, 7
"""The codes of rules in ``kernels``."""
SCARCE_PERCENT = 110
"""Requested cpu, in percent of the nodes' cpu, from which cpu is scarce. Below it the sum of both
measures packs up to 0.2 percentage points of GPU less; above it FGD's measure alone packs up to 1.3
less."""


class Policy(NamedTuple):
    """A placement rule; the help of ``strom simulate pack`` describes each.

    ``popular_percent``: it considers the most popular shapes that make up this percentage of the
    pods; 0 for none."""

    code: int
    popular_percent: int = 0


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "random": Policy(RANDOM),
        "dot-product": Policy(DOT_PRODUCT),
        "gpu-packing": Policy(GPU_PACKING),
        "gpu-clustering": Policy(GPU_CLUSTERING),
        "best-fit": Policy(BEST_FIT),
        "fgd": Policy(FGD, 95),
        "least-stranded": Policy(STRANDED_TIES, 95),
    }
)


class PodMix(NamedTuple):
    """Typical pods, per model of node.

    ``kinds``: models x kinds x (cpu, memory, GPUs, milli per GPU), as many as have a weight.
    ``weights``: models x kinds, pods. ``others``: models, the number of pods that can use none of
    its GPUs, because they request no GPU or another model. ``total``: all pods, the same for each
    model.
    """

    kinds: trace.Integers
    weights: trace.Integers
    others: trace.Integers
    total: int


def pod_mix(nodes: trace.Nodes, pods: trace.Pods, popular_percent: int) -> PodMix:
    """Return the most popular shapes that together are ``popular_percent`` of the pods.

    Equally popular shapes are taken in the order of the list. On a GPU model, the shapes that
    accept it and otherwise request the same are one kind, which limits the number of kinds.
    """
    counts = pods.counts
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    kept = order[before * 100 < counts.sum() * popular_percent]
    kinds_by_model: list[dict[tuple[int, ...], int]] = [{} for _ in nodes.models]
    for row in kept.tolist():
        shape = trace.Shape(*pods.shapes[row].tolist())
        for model, kinds in enumerate(kinds_by_model):
            if shape.gpus and shape.models >> model & 1:
                kinds[shape[:4]] = kinds.get(shape[:4], 0) + int(counts[row])
    return scale_mix(kinds_by_model, int(counts[kept].sum()))


def scale_mix(kinds_by_model: Sequence[Mapping[tuple[int, ...], int]], total: int) -> PodMix:
    """Return a mix of ``total`` pods. ``kinds_by_model``: for each GPU model, kind (cpu, memory,
    GPUs, milli per GPU) -> number of pods."""
    width = max(1, *map(len, kinds_by_model))
    table = np.zeros((len(kinds_by_model), width, 4), np.int64)
    weights = np.zeros((len(kinds_by_model), width), np.int64)
    for model, kinds in enumerate(kinds_by_model):
        if kinds:
            table[model, : len(kinds)] = list(kinds)
            weights[model, : len(kinds)] = list(kinds.values())
    return PodMix(table, weights, total - weights.sum(axis=1), total)


def kernel_for(policy: Policy, nodes: trace.Nodes, pods: trace.Pods) -> tuple[int, int]:
    """Return the kernel of a policy for these lists, and the bonus in milli for putting a pod on an
    idle GPU.

    While cpu is plentiful, ``least-stranded`` uses stranded GPU as the tie-breaker of FGD. Once cpu
    is scarce, it weighs both equally, because GPUs then stay idle for lack of cpu on their nodes.
    The bonus for putting small pods on an idle GPU grows with the square of the share of GPU that
    is requested in parts of a GPU.
    """
    if policy.code != STRANDED_TIES or not is_cpu_scarce(nodes, pods):
        return policy.code, 0
    return STRANDED_SUM, partial_milli(pods) ** 2 // 1000


def is_cpu_scarce(nodes: trace.Nodes, pods: trace.Pods) -> bool:
    """Return whether all arriving pods request at least ``SCARCE_PERCENT`` of the nodes' cpu."""
    cpu = int((pods.counts * pods.shapes[:, 0]).sum())
    gpu = int((pods.counts * pods.gpu_milli).sum())
    arrived = nodes.total_milli * arrivals.ARRIVED_PERCENT
    return cpu * arrived >= SCARCE_PERCENT * gpu * int(nodes.cpu_milli.sum())


def partial_milli(pods: trace.Pods) -> int:
    """Return the GPU milli requested by pods that request part of a GPU."""
    requested = pods.counts * pods.gpu_milli
    return int(requested[pods.shapes[:, 3] < trace.WHOLE_MILLI].sum() * 1000 // requested.sum())
