"""A kubelet's PodResources API on a real socket, with configurable responses.

Responses are encoded byte by byte from the field numbers in Kubernetes'
``pkg/apis/podresources/v1/api.proto``, so that a client with other numbers fails.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from pathlib import Path

import grpc
import msgspec


class ContainerAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """The exclusive resources of a container. ``devices``: resource -> ids; ``numa_nodes``: their
    NUMA nodes. ``memory``: kind -> bytes. ``claims``: driver, pool and device of resource
    claims."""

    pod: str
    namespace: str = "default"
    container: str = "c"
    cpus: tuple[int, ...] = ()
    devices: Mapping[str, tuple[str, ...]] = {}
    memory: Mapping[str, int] = {}
    claims: tuple[tuple[str, str, str], ...] = ()
    numa_nodes: tuple[int, ...] = ()


class FakeKubelet:
    """The responses; they may be changed at any time. ``healthy``: resource -> allocatable devices.
    ``allocatable_memory``: NUMA node -> bytes.
    ``calls`` counts by method. ``fails``: the error to return.
    """

    def __init__(self) -> None:
        self.given: Sequence[ContainerAllocation] = ()
        self.allocatable: Sequence[int] = ()
        self.allocatable_memory: Mapping[int, int] = {}
        self.healthy: Mapping[str, Sequence[str]] = {}
        self.calls: dict[str, int] = {}
        self.fails: grpc.StatusCode | None = None

    def answer(self, method: str) -> bytes:
        """The response to a call of this name."""
        self.calls[method] = self.calls.get(method, 0) + 1
        if method == "GetAllocatableResources":
            devices = (
                _nested(1, _text(1, resource) + _text(2, id_))
                for resource, ids in self.healthy.items()
                for id_ in ids
            )
            memory = (
                _nested(
                    3,
                    _text(1, "memory")
                    + _number(2, size_bytes)
                    + _nested(3, _nested(1, _number(1, numa_node))),
                )
                for numa_node, size_bytes in self.allocatable_memory.items()
            )
            return b"".join([*devices, _packed(2, self.allocatable), *memory])
        return b"".join(_nested(1, _pod(each)) for each in self.given)


@contextlib.contextmanager
def serve(kubelet: FakeKubelet, folder: Path) -> Iterator[Path]:
    """Serve the API below a kubelet's folder during the context and remove the socket at its end.

    The socket's path is a link, because temporary folders exceed the maximum length of a socket
    address.
    """
    path = folder / "pod-resources/kubelet.sock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)

    def method(name: str) -> grpc.RpcMethodHandler:
        def call(request: bytes, context: grpc.ServicerContext) -> bytes:
            if kubelet.fails is not None:
                context.abort(kubelet.fails, "failure set by the test")
            return kubelet.answer(name)

        return grpc.unary_unary_rpc_method_handler(call)

    methods = {name: method(name) for name in ("List", "GetAllocatableResources")}
    server = grpc.server(futures.ThreadPoolExecutor(2))
    handler = grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods)
    server.add_generic_rpc_handlers((handler,))
    with tempfile.TemporaryDirectory(prefix="kubelet-") as short:
        socket = Path(short, "kubelet.sock")
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        path.symlink_to(socket)
        try:
            yield path
        finally:
            path.unlink()
            server.stop(None).wait()


def _pod(container_allocation: ContainerAllocation) -> bytes:
    topology = b"".join(_nested(1, _number(1, cell)) for cell in container_allocation.numa_nodes)
    container = [_text(1, container_allocation.container)]
    for resource, ids in container_allocation.devices.items():
        # One entry a device, as kubelets write it.
        container += [
            _nested(2, _text(1, resource) + _text(2, id_) + _nested(3, topology)) for id_ in ids
        ]
    container.append(_packed(3, container_allocation.cpus))
    for kind, size_bytes in container_allocation.memory.items():
        block = _text(1, kind) + _number(2, size_bytes) + _nested(3, topology)
        container.append(_nested(4, block))
    for driver, pool, device in container_allocation.claims:
        claimed = _text(2, driver) + _text(3, pool) + _text(4, device)
        container.append(_nested(5, _text(2, "claim") + _nested(4, claimed)))
    return (
        _text(1, container_allocation.pod)
        + _text(2, container_allocation.namespace)
        + _nested(3, b"".join(container))
    )


def _varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _nested(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _nested(field, value.encode())


def _packed(field: int, values: Sequence[int]) -> bytes:
    return _nested(field, b"".join(map(_varint, values))) if values else b""
