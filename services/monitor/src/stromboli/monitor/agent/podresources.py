"""Reads exclusive CPUs, devices and memory of containers from the kubelet, over its socket.

The API is ``v1.PodResourcesLister``. It has few messages, so they are defined here as a table and
need no compiler. Source: Kubernetes, pkg/apis/podresources/v1/api.proto.
"""

from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from stromboli.monitor.core.hardware import kubelet
from stromboli.shared import errors
from stromboli.shared.formats import cpu_lists
from stromboli.shared.messages import node_topology

TIMEOUT_S = 5.0
"""A kubelet answers in milliseconds; one that is starting takes longer."""
LARGEST_BYTES = 16 * 1024 * 1024
"""Largest response, as the kubelet recommends to its clients."""
SERVICE = "v1.PodResourcesLister"

# Message -> field -> number and type; a list of a type is [type].
FIELDS: Mapping[str, Mapping[str, tuple[int, Any]]] = {
    "ListPodResourcesRequest": {},
    "ListPodResourcesResponse": {"pod_resources": (1, ["PodResources"])},
    "PodResources": {
        "name": (1, "string"),
        "namespace": (2, "string"),
        "containers": (3, ["ContainerResources"]),
    },
    "ContainerResources": {
        "name": (1, "string"),
        "devices": (2, ["ContainerDevices"]),
        "cpu_ids": (3, ["int64"]),
        "memory": (4, ["ContainerMemory"]),
        "dynamic_resources": (5, ["DynamicResource"]),
    },
    "ContainerDevices": {
        "resource_name": (1, "string"),
        "device_ids": (2, ["string"]),
        "topology": (3, "TopologyInfo"),
    },
    "ContainerMemory": {
        "memory_type": (1, "string"),
        "size": (2, "uint64"),
        "topology": (3, "TopologyInfo"),
    },
    "TopologyInfo": {"nodes": (1, ["NUMANode"])},
    "NUMANode": {"ID": (1, "int64")},
    "DynamicResource": {
        "claim_name": (2, "string"),
        "claim_namespace": (3, "string"),
        "claim_resources": (4, ["ClaimResource"]),
    },
    "ClaimResource": {
        "driver_name": (2, "string"),
        "pool_name": (3, "string"),
        "device_name": (4, "string"),
    },
    "AllocatableResourcesRequest": {},
    "AllocatableResourcesResponse": {
        "devices": (1, ["ContainerDevices"]),
        "cpu_ids": (2, ["int64"]),
        "memory": (3, ["ContainerMemory"]),
    },
}
_SCALARS = {"string": 9, "int32": 5, "int64": 3, "uint64": 4, "bool": 8}
_MESSAGE, _ONE, _MANY = 11, 1, 3


def message_classes(
    package: str, table: Mapping[str, Mapping[str, tuple[int, Any]]]
) -> Mapping[str, Any]:
    """Message name -> class, for a table in the format of ``FIELDS``."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"stromboli/{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for field, (number, type_) in fields.items():
            wanted = type_[0] if isinstance(type_, list) else type_
            message.field.add(
                name=field,
                number=number,
                label=_MANY if isinstance(type_, list) else _ONE,
                type=_SCALARS.get(wanted, _MESSAGE),
                type_name=None if wanted in _SCALARS else f".{package}.{wanted}",
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in table
    }


MESSAGES = message_classes("v1", FIELDS)
"""Message name -> class."""


class Kubelet:
    """A connection to a kubelet's socket. gRPC reconnects when the kubelet restarts."""

    def __init__(self, socket: str) -> None:
        self._channel = grpc.insecure_channel(
            f"unix://{socket}",
            options=[
                ("grpc.max_receive_message_length", LARGEST_BYTES),
                ("grpc.enable_http_proxy", 0),
                # Reconnect soon after a kubelet's restart, not after gRPC's two minutes.
                ("grpc.max_reconnect_backoff_ms", 5000),
            ],
        )

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def exclusive_allocations(self) -> tuple[node_topology.ExclusiveAllocation, ...] | None:
        """Every container with exclusive resources; None if the kubelet lists no pod at all.
        Raises TransientError."""
        answer = self._call("List", "ListPodResourcesRequest", "ListPodResourcesResponse")
        if not answer.pod_resources:
            return None
        allocations = (
            _holding(pod, container) for pod in answer.pod_resources for container in pod.containers
        )
        return tuple(each for each in allocations if each.cpus or each.devices or each.memory)

    def allocatable(self) -> kubelet.Allocatable:
        """What containers can get exclusively. Raises TransientError."""
        answer = self._call(
            "GetAllocatableResources",
            "AllocatableResourcesRequest",
            "AllocatableResourcesResponse",
        )
        devices: dict[str, frozenset[str]] = {}
        for each in answer.devices:
            known = devices.get(each.resource_name, frozenset())
            devices[each.resource_name] = known.union(each.device_ids)
        memory = {
            numa_node: block.size
            for block in answer.memory
            if block.memory_type == kubelet.MEMORY
            for numa_node in _cells(block.topology)
        }
        return kubelet.Allocatable(frozenset(answer.cpu_ids), devices, memory)

    def _call(self, method: str, request: str, response: str) -> Any:
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=MESSAGES[response].FromString,
        )
        try:
            return call(MESSAGES[request](), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            why = f"{error.code().name}: {error.details()}"
            raise errors.TransientError(f"kubelet {method}", why) from None


def _holding(pod: Any, container: Any) -> node_topology.ExclusiveAllocation:
    ids: dict[str, set[str]] = {}
    numa_nodes: dict[str, set[int]] = {}
    for each in container.devices:  # one entry per device, or one for all: kubelet versions differ
        ids.setdefault(each.resource_name, set()).update(each.device_ids)
        numa_nodes.setdefault(each.resource_name, set()).update(_cells(each.topology))
    for dynamic in container.dynamic_resources:
        for each in dynamic.claim_resources:
            ids.setdefault(each.driver_name, set()).add(f"{each.pool_name}/{each.device_name}")
    return node_topology.ExclusiveAllocation(
        namespace=pod.namespace,
        pod=pod.name,
        container=container.name,
        cpus=cpu_lists.written(container.cpu_ids),
        devices=tuple(
            node_topology.AllocatedDevices(
                resource=name,
                ids=tuple(sorted(own)),
                numa_nodes=tuple(sorted(numa_nodes.get(name, ()))),
            )
            for name, own in sorted(ids.items())
        ),
        memory=tuple(
            node_topology.AllocatedMemory(
                kind=block.memory_type, size_bytes=block.size, numa_nodes=_cells(block.topology)
            )
            for block in container.memory
        ),
    )


def _cells(topology: Any) -> tuple[int, ...]:
    return tuple(sorted(node.ID for node in topology.nodes))
