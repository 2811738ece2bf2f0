"""A device plugin with devices that do not exist: it registers with a real kubelet, and containers
get the ids of their devices in a variable.

The protocol is Kubernetes' ``pkg/apis/deviceplugin/v1beta1/api.proto``. A kubelet that starts
deletes all sockets of plugins, and each plugin registers again when the kubelet's socket is new.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from stromboli.monitor.agent.podresources import message_classes

VARIABLE = "TEST_DEVICES"
"""Environment variable of a container: the ids of its devices, separated by commas."""
KUBELET, OWN = "kubelet.sock", "test.sock"
VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
POLL_EVERY_S = 0.1
TIMEOUT_S = 5.0
STREAMS = 8
"""Threads of the server: each connection of a kubelet occupies one until gRPC notices its end."""

FIELDS: Mapping[str, Mapping[str, tuple[int, Any]]] = {
    "Empty": {},
    "DevicePluginOptions": {
        "pre_start_required": (1, "bool"),
        "get_preferred_allocation_available": (2, "bool"),
    },
    "RegisterRequest": {
        "version": (1, "string"),
        "endpoint": (2, "string"),
        "resource_name": (3, "string"),
        "options": (4, "DevicePluginOptions"),
    },
    "NUMANode": {"ID": (1, "int64")},
    "TopologyInfo": {"nodes": (1, ["NUMANode"])},
    "Device": {"ID": (1, "string"), "health": (2, "string"), "topology": (3, "TopologyInfo")},
    "ListAndWatchResponse": {"devices": (1, ["Device"])},
    "ContainerPreferredAllocationRequest": {
        "available": (1, ["string"]),
        "must_include": (2, ["string"]),
        "size": (3, "int32"),
    },
    "PreferredAllocationRequest": {"containers": (1, ["ContainerPreferredAllocationRequest"])},
    "ContainerPreferredAllocationResponse": {"ids": (1, ["string"])},
    "PreferredAllocationResponse": {"containers": (1, ["ContainerPreferredAllocationResponse"])},
    "ContainerAllocateRequest": {"ids": (1, ["string"])},
    "AllocateRequest": {"containers": (1, ["ContainerAllocateRequest"])},
    "Variable": {"key": (1, "string"), "value": (2, "string")},
    "ContainerAllocateResponse": {"envs": (1, ["Variable"])},
    "AllocateResponse": {"containers": (1, ["ContainerAllocateResponse"])},
}
MESSAGES = message_classes(VERSION, FIELDS)

Prefer = Callable[[frozenset[str], int], frozenset[str]]
"""Function of the available devices and the requested number; returns the devices to allocate."""


class DevicePlugin:
    """The devices of one resource of a node while inside the context.

    ``folder``: the kubelet's ``device-plugins``; ``numa_nodes``: device -> its NUMA node;
    ``prefer``: None leaves the choice to the kubelet.
    """

    def __init__(
        self,
        folder: Path,
        resource: str,
        numa_nodes: Mapping[str, int],
        prefer: Prefer | None = None,
    ) -> None:
        self._folder = folder
        self._resource = resource
        self._numa_nodes = numa_nodes
        self._prefer = prefer
        self._unhealthy: frozenset[str] = frozenset()
        self._changed = threading.Condition()
        self._version = 0
        self._stopping = threading.Event()
        self._registered: int | None = None
        self._exit = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._keep_registered, daemon=True)

    def report_unhealthy(self, *ids: str) -> None:
        """Report these devices as unhealthy, and all others as healthy."""
        with self._changed:
            self._unhealthy = frozenset(ids)
            self._version += 1
            self._changed.notify_all()

    def __enter__(self) -> DevicePlugin:
        """Register now, and again after each restart of the kubelet."""
        # The path of a socket has at most 107 bytes, so gRPC gets a short path through a link.
        short = Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="devices-")), "d")
        short.symlink_to(self._folder)
        self._short = short
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections to the kubelet and stop the server."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join()
        self._exit.close()

    # Registration ---------------------------------------------------------------------------

    def _keep_registered(self) -> None:
        server: grpc.Server | None = None
        while not self._stopping.wait(POLL_EVERY_S):
            found = _made(self._folder / KUBELET)
            if found is None or found == self._registered:
                continue
            if server is not None:
                server.stop(None).wait()
            server = self._serve()
            with contextlib.suppress(grpc.RpcError):  # it is starting, or has stopped again
                self._register()
                self._registered = found
        if server is not None:
            server.stop(None).wait()

    def _register(self) -> None:
        options = MESSAGES["DevicePluginOptions"](
            get_preferred_allocation_available=self._prefer is not None
        )
        request = MESSAGES["RegisterRequest"](
            version=VERSION, endpoint=OWN, resource_name=self._resource, options=options
        )
        address = f"unix://{self._short / KUBELET}"
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            call = channel.unary_unary(
                f"/{VERSION}.Registration/Register",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=MESSAGES["Empty"].FromString,
            )
            call(request, timeout=TIMEOUT_S)

    def _serve(self) -> grpc.Server:
        (self._folder / OWN).unlink(missing_ok=True)
        server = grpc.server(futures.ThreadPoolExecutor(STREAMS))
        methods = {
            "GetDevicePluginOptions": unary(MESSAGES["Empty"], self._options),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._devices, MESSAGES["Empty"].FromString, _bytes
            ),
            "GetPreferredAllocation": unary(
                MESSAGES["PreferredAllocationRequest"], self._preferred
            ),
            "Allocate": unary(MESSAGES["AllocateRequest"], self._allocate),
        }
        handler = grpc.method_handlers_generic_handler(f"{VERSION}.DevicePlugin", methods)
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"unix://{self._short / OWN}")
        server.start()
        return server

    # The kubelet's calls --------------------------------------------------------------------

    def _options(self, request: Any, context: grpc.ServicerContext) -> Any:
        return MESSAGES["DevicePluginOptions"](
            get_preferred_allocation_available=self._prefer is not None
        )

    def _devices(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        sent = -1
        while not self._stopping.is_set() and context.is_active():
            with self._changed:
                if sent == self._version:
                    self._changed.wait(POLL_EVERY_S)
                    continue
                sent = self._version
                answer = MESSAGES["ListAndWatchResponse"]()
                for device, numa_node in self._numa_nodes.items():
                    health = UNHEALTHY if device in self._unhealthy else HEALTHY
                    place = {"nodes": [{"ID": numa_node}]}
                    answer.devices.add(ID=device, health=health, topology=place)
            yield answer

    def _preferred(self, request: Any, context: grpc.ServicerContext) -> Any:
        answer = MESSAGES["PreferredAllocationResponse"]()
        for each in request.containers:
            chosen = self._prefer(frozenset(each.available), each.size) if self._prefer else ()
            answer.containers.add(ids=sorted(chosen))
        return answer

    def _allocate(self, request: Any, context: grpc.ServicerContext) -> Any:
        answer = MESSAGES["AllocateResponse"]()
        for each in request.containers:
            answer.containers.add(envs=[{"key": VARIABLE, "value": ",".join(sorted(each.ids))}])
        return answer


def unary(request: Any, respond: Callable[[Any, grpc.ServicerContext], Any]) -> Any:
    """The handler of a method with one request of this class and one response."""
    return grpc.unary_unary_rpc_method_handler(respond, request.FromString, _bytes)


def _bytes(message: Any) -> bytes:
    encoded: bytes = message.SerializeToString()
    return encoded


def _made(path: Path) -> int | None:
    """Creation time of the file in nanoseconds, because inode numbers are reused; None if it does
    not exist."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return None
