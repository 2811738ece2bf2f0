"""Creates the Numatopology of a node from its agent's report, for other tools.

The object is written on change only, in Volcano's format: CPUs without an exclusive owner count as
allocatable, reserved ones included. The id of a core is the lowest number of its CPUs, unique over
all sockets. The node owns the object. An old report is kept, with the time of the agent's last
report.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.store import controller_cache
from stromboli.shared import keys
from stromboli.shared.api import core, kinds, numa
from stromboli.shared.formats import cpu_lists
from stromboli.shared.messages import node_topology


def reconcile(cache: controller_cache.ControllerCache, key: str, now: datetime) -> commands.Plan:
    """Create or update the Numatopology of a node."""
    observed, node = cache.hardware.of(key), cache.get(kinds.NODES, key)
    if observed is None or node is None or cache.is_terminating(node):
        return ()
    spec = spec_of(observed.topology)
    if spec is None:
        return ()
    silent = observed.silent_since
    marks = {keys.SILENT_SINCE: silent.isoformat(timespec="seconds")} if silent else {}
    numatopology = cache.get(kinds.NUMA_TOPOLOGIES, key)
    if numatopology is not None:
        return _changed(numatopology, spec, marks) if not cache.is_terminating(numatopology) else ()
    if cache.state(kinds.NUMA_TOPOLOGIES, key) is not None:
        return ()  # it exists and cannot be decoded
    return ((_created(node, spec, marks),),)


def spec_of(topology: node_topology.NodeTopology) -> numa.NumatopologySpec | None:
    """The spec; None if the report has no CPU or is inconsistent."""
    try:
        topology_index = _places(topology)
        exclusive_cpus = {
            at: cpu_lists.parsed(each.cpus)
            for at, each in enumerate(topology.exclusive_allocations)
            if each.cpus
        }
    except ValueError:
        return None
    if not topology_index:
        return None
    kubelet = topology.kubelet
    policies = {
        "CPUManagerPolicy": kubelet.cpu_policy,
        "TopologyManagerPolicy": kubelet.topology_policy,
    }
    reserved = kubelet.reserved.get("cpu", "")
    free = topology_index.keys() - frozenset().union(*exclusive_cpus.values())
    return numa.NumatopologySpec(
        policies={name: policy for name, policy in policies.items() if policy} or None,
        res_reserved={"cpu": reserved} if reserved else None,
        numares={
            "cpu": numa.NumaResource(
                allocatable=cpu_lists.written(free), capacity=len(topology_index)
            )
        },
        cpu_detail={str(cpu): place for cpu, place in sorted(topology_index.items())},
        pod_allocations=_holders(topology, exclusive_cpus),
    )


def _places(topology: node_topology.NodeTopology) -> Mapping[int, numa.CpuPlace]:
    """CPU -> its core, NUMA node and socket. A CPU without a known NUMA node is omitted."""
    cpu_places: dict[int, numa.CpuPlace] = {}
    for each in topology.cores:
        cpus = cpu_lists.parsed(each.cpus)
        if each.numa_node != node_topology.UNKNOWN_NUMA_NODE:
            place = numa.CpuPlace(
                numa=each.numa_node, socket=each.socket, core=min(cpus, default=0)
            )
            cpu_places |= dict.fromkeys(cpus, place)
    return cpu_places


def _holders(
    topology: node_topology.NodeTopology, exclusive_cpus: Mapping[int, frozenset[int]]
) -> tuple[numa.PodAllocation, ...]:
    pods: dict[tuple[str, str, str], list[numa.ContainerAllocation]] = {}
    for at, cpus in exclusive_cpus.items():
        each = topology.exclusive_allocations[at]
        own = numa.ContainerAllocation(
            name=each.container, allocations={"cpu": cpu_lists.written(cpus)}
        )
        pods.setdefault((each.uid, each.namespace, each.pod), []).append(own)
    return tuple(
        numa.PodAllocation(
            uid=uid, namespace=namespace, name=name, container_allocations=tuple(containers)
        )
        for (uid, namespace, name), containers in pods.items()
    )


def _created(
    node: core.Node, spec: numa.NumatopologySpec, marks: Mapping[str, str]
) -> commands.Create:
    kind, name = kinds.NUMA_TOPOLOGIES, node.metadata.name
    # Without controller and blockOwnerDeletion, the reference needs no permission on nodes.
    owner = {
        "apiVersion": kinds.NODES.api_version,
        "kind": kinds.NODES.kind,
        "name": name,
        "uid": node.metadata.uid,
    }
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "annotations": dict(marks), "ownerReferences": [owner]},
        "spec": msgspec.to_builtins(spec),
    }
    return commands.Create(kind=kind, namespace="", name=name, body=manifests.encode(body))


def _changed(
    numatopology: numa.Numatopology, spec: numa.NumatopologySpec, marks: Mapping[str, str]
) -> commands.Plan:
    before = numatopology.metadata.annotations or {}
    annotations = {name: value for name, value in before.items() if name != keys.SILENT_SINCE}
    annotations |= marks
    if numatopology.spec == spec and annotations == before:
        return ()
    write = manifests.json_patch(
        kinds.NUMA_TOPOLOGIES,
        numatopology,
        manifests.test("/metadata/resourceVersion", numatopology.metadata.resource_version),
        manifests.put("/spec", msgspec.to_builtins(spec)),
        manifests.put("/metadata/annotations", annotations),
    )
    return ((write,),)
