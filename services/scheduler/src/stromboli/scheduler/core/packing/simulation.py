"""Places one arrival sequence by one policy, and measures the result."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.packing import kernels, policies, trace

CAPACITY_PERCENT = 100


class ClusterUsage(NamedTuple):
    """GPU usage at a point of the sequence, in percent of the cluster's GPU capacity.

    ``fragmented_percent``: the free GPU capacity that a pod of the list cannot use, on average over
    the pods (FGD's measure); computed for every policy.
    """

    gpu_allocation_ratio_percent: float
    fragmented_percent: float


class RandomDraws(NamedTuple):
    """The random inputs.

    ``order``: the rows of the nodes in a random order; ties go to the first node in it. One order
    for a whole sequence comes closest to the published numbers of all policies: a new one per pod
    costs policies with many ties, such as GPU packing, up to 8 points. ``draws``: arrivals x 2
    within [0, 1), for the policy ``random``.
    """

    order: trace.Integers
    draws: npt.NDArray[np.float64]


class PlacementResult(NamedTuple):
    """``node_of``: the node of each arrival or -1; ``gpus_of``: its GPUs there as bits."""

    node_of: trace.Integers
    gpus_of: trace.Integers


def place(
    nodes: trace.Nodes,
    pods: trace.Pods,
    policy: policies.Policy,
    arrivals: trace.Integers,
    luck: RandomDraws,
) -> PlacementResult:
    """Place ``arrivals`` (shapes) one after another. A pod that does not fit is dropped."""
    mix = policies.pod_mix(nodes, pods, policy.popular_percent)
    kernel, opening = policies.kernel_for(policy, nodes, pods)
    node_of, gpus_of = kernels.place_all(
        kernel,
        nodes.cpu_milli.copy(),
        nodes.memory_mib.copy(),
        nodes.gpu_milli.copy(),
        nodes.model,
        pods.shapes,
        arrivals,
        luck.order,
        luck.draws,
        mix,
        opening,
    )
    return PlacementResult(node_of, gpus_of)


def measure(
    nodes: trace.Nodes,
    pods: trace.Pods,
    arrivals: trace.Integers,
    run: PlacementResult,
    arrived_percent: int | None = None,
) -> ClusterUsage:
    """Return the state at ``arrived_percent`` of the GPU capacity, or at the end of the
    sequence."""
    requested = np.cumsum(pods.gpu_milli[arrivals])
    total = nodes.total_milli
    end = len(arrivals)
    if arrived_percent is not None:
        end = int(np.searchsorted(requested * 100, total * arrived_percent, side="right"))
    cpu, memory, gpus = nodes.cpu_milli.copy(), nodes.memory_mib.copy(), nodes.gpu_milli.copy()
    for arrival in range(end):
        node = int(run.node_of[arrival])
        if node < 0:
            continue
        shape = trace.Shape(*pods.shapes[arrivals[arrival]].tolist())
        cpu[node] -= shape.cpu_milli
        memory[node] -= shape.memory_mib
        for place in range(gpus.shape[1]):
            if run.gpus_of[arrival] >> place & 1:
                gpus[node, place] -= shape.gpu_milli
    mix = policies.pod_mix(nodes, pods, CAPACITY_PERCENT)
    unusable = sum(
        int(kernels.fragmented(*state, mix))
        for state in zip(cpu, memory, gpus, nodes.model, strict=True)
    )
    left = int(np.maximum(gpus, 0).sum())
    return ClusterUsage(
        100 * (total - left) / total,
        100 * unusable / (mix.total * total),
    )


def compile_kernels(nodes: trace.Nodes, pods: trace.Pods) -> None:
    """Compile the kernels of ``place`` and ``measure``, so that the first sequence is as fast as
    others.

    This takes about 10 s, unless the code is in the cache.
    """
    nothing = np.zeros(0, np.int64)
    luck = RandomDraws(np.arange(len(nodes.cpu_milli)), np.zeros((0, 2)))
    run = place(nodes, pods, policies.POLICIES["random"], nothing, luck)
    measure(nodes, pods, nothing, run)
