"""Clusters for ``bench.session``: nodes of 32 cores, gangs of equal pods in a number of shapes.

The clusters depend on the options alone, so that two machines measure the same decisions.
"""

from collections.abc import Iterator

import msgspec

from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.shared.api import core, meta, scheduling
from stromboli.testkit import builders, served_pods

CORES = 32
MEMORY_GIB = 256
POOLS = 4
"""Number of values of the label that selectors use."""
FULL = 0.7
"""Fraction of the free CPU that all gangs together request."""
_TAINT = core.Taint(key="dedicated", value="batch", effect="NoSchedule")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The gangs and nodes of a cluster. ``prefill``, ``selectors`` and ``taints`` are fractions: of
    each node's cpu that is in use, of gangs that select a pool, of nodes with a taint that few
    gangs tolerate."""

    nodes: int = 10_000
    gangs: int = 1_000
    size: int = 100
    shapes: int = 20
    queues: int = 1
    prefill: float = 0.0
    selectors: float = 0.0
    taints: float = 0.0
    is_equal: bool = False
    """All pods request 1 core and 1 GiB, as in Volcano's own benchmark."""
    as_served: bool = True
    """Pods have the fields that an API server with the default admission plugins adds, and share no
    objects with each other, like decoded pods."""
    token_volumes: bool = True
    """With ``as_served``: these fields include a token volume with a random name."""


class Shape(msgspec.Struct, frozen=True):
    """The requests of the pods of some gangs."""

    cpu_milli: int
    memory_mib: int


def shapes(options: Options) -> list[Shape]:
    """Requests of half to one and a half times the mean, such that all pods together request
    ``FULL`` of the free CPU."""
    if options.is_equal:
        return [Shape(1000, 1024)]
    pods = options.gangs * options.size
    mean = FULL * (1 - options.prefill) * options.nodes * CORES * 1000 / pods
    return [
        Shape(max(int(mean * (10 + at % 21) / 20), 1), 256 + 16 * (at // 21) + 128 * (at % 7))
        for at in range(options.shapes)
    ]


def build_cluster(options: Options) -> cluster_objects.Cluster:
    """The cluster before any decision."""
    running = list(_running(options))
    groups: list[scheduling.PodGroup] = []
    pods: list[core.Pod] = []
    kinds = shapes(options)
    for at in range(options.gangs):
        group, members = _gang(options, at, kinds[at % len(kinds)])
        groups.append(group)
        pods.extend(members)
    return cluster_objects.Cluster(
        now=builders.NOON,
        nodes=tuple(_nodes(options)),
        pods=(*running, *pods),
        pod_groups=tuple(groups),
        queues=tuple(builders.make_queue(f"q{at}") for at in range(options.queues)),
    )


def _nodes(options: Options) -> Iterator[core.Node]:
    for at in range(options.nodes):
        yield builders.make_node(
            f"n{at:06}",
            cpu=CORES,
            memory=f"{MEMORY_GIB}Gi",
            labels={"pool": f"p{at % POOLS}"},
            taints=(_TAINT,) if _is_selected(at, options.taints) else (),
        )


def _running(options: Options) -> Iterator[core.Pod]:
    """Pods of another scheduler, two on each node, that use the prefilled part of it."""
    if not options.prefill:
        return
    for at in range(options.nodes):
        # Slightly uneven, so that nodes differ as in real clusters.
        cpu = int(CORES * 1000 * options.prefill / 2 * (0.9 + 0.2 * (at * 7919 % 101) / 100))
        for half in range(2):
            other = builders.make_pod(
                f"other-{at}-{half}",
                cpu=f"{cpu}m",
                memory=f"{int(MEMORY_GIB * options.prefill / 2)}Gi",
                node=f"n{at:06}",
                phase="Running",
                scheduler="default-scheduler",
            )
            yield as_served(options, other)


def _gang(options: Options, at: int, shape: Shape) -> tuple[scheduling.PodGroup, list[core.Pod]]:
    name = f"g{at:05}"
    cpu, memory = f"{shape.cpu_milli}m", f"{shape.memory_mib}Mi"
    selector = {"pool": f"p{at % POOLS}"} if _is_selected(at, options.selectors) else None
    tolerated = (core.Toleration(key="dedicated", operator="Exists"),) if at % 10 == 0 else ()
    first = builders.make_pod(
        f"{name}-w-0", name, cpu=cpu, memory=memory, node_selector=selector, tolerations=tolerated
    )
    group = builders.make_pod_group(
        name,
        options.size,
        queue=f"q{at % options.queues}",
        phase="Pending",
        min_resources={
            "cpu": f"{shape.cpu_milli * options.size}m",
            "memory": f"{shape.memory_mib * options.size}Mi",
        },
    )
    members = (_renamed(first, f"{name}-w-{number}") for number in range(options.size))
    return group, [as_served(options, member) for member in members]


def as_served(options: Options, pod: core.Pod) -> core.Pod:
    """The pod with the fields that the options add."""
    if not options.as_served:
        return pod
    return served_pods.served_pod(pod, with_token=options.token_volumes)


def _renamed(pod: core.Pod, name: str) -> core.Pod:
    stamped: meta.ObjectMeta = msgspec.structs.replace(
        pod.metadata, name=name, uid=f"pod-default-{name}"
    )
    return msgspec.structs.replace(pod, metadata=stamped)


def _is_selected(at: int, fraction: float) -> bool:
    """Whether the item at this index is part of an evenly distributed fraction."""
    return int((at + 1) * fraction) > int(at * fraction)
