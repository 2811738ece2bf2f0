"""``EmbeddedPodSessions``: sessions in pods of process nodes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import msgspec

from stromboli.embedded.cluster import pods
from stromboli.embedded.processes.agent import ProcessNodeAgent
from stromboli.shared import errors
from stromboli.shared.api import core, kinds
from stromboli.shared.cluster import pod_sessions
from stromboli.shared.cluster import port as cluster_port

CHUNK_BYTES = 1 << 16
CONNECT_WITHIN_S = 5.0


class EmbeddedPodSessions:
    """Sessions in pods of an embedded cluster. ``agents``: node -> its agent."""

    def __init__(
        self, cluster: cluster_port.Cluster, agents: Mapping[str, ProcessNodeAgent]
    ) -> None:
        self._cluster = cluster
        self._agents = agents

    @contextlib.asynccontextmanager
    async def exec(
        self, namespace: str, pod: str, request: pod_sessions.ExecRequest
    ) -> AsyncIterator[pod_sessions.ExecSession]:
        """Run a command in a container, beside its main process."""
        what = f"run a command in Pod {namespace}/{pod}"
        pod_object, agent = await self._running(namespace, pod, what)
        container = pods.container_of(pod_object, request.container, what)
        chosen = msgspec.structs.replace(request, container=container)
        async with agent.exec(pod_object.metadata.uid, chosen) as session:
            yield session

    @contextlib.asynccontextmanager
    async def connect(
        self, namespace: str, pod: str, port: int
    ) -> AsyncIterator[pod_sessions.PodConnection]:
        """Connect to a port on the pod's address."""
        what = f"connect to port {port} of Pod {namespace}/{pod}"
        pod_object, agent = await self._running(namespace, pod, what)
        address = agent.address(pod_object.metadata.uid)
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                reader, writer = await asyncio.open_connection(address, port)
        except (OSError, TimeoutError):
            reason = (
                f"no process listens on {address}:{port}; listen on 0.0.0.0 or the pod's address"
            )
            raise errors.InvalidError(what, reason) from None
        try:
            yield LocalConnection(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _running(
        self, namespace: str, name: str, what: str
    ) -> tuple[core.Pod, ProcessNodeAgent]:
        """The pod and the agent of its node. Raises InvalidError, UnsupportedError."""
        pod = kinds.PODS.decode(await self._cluster.get(kinds.PODS, namespace, name))
        if not pod.spec.node_name or pod.status.phase != "Running":
            raise errors.InvalidError(what, f"the pod is {pod.status.phase or 'Pending'}")
        if (agent := self._agents.get(pod.spec.node_name)) is None:
            reason = (
                f"node {pod.spec.node_name} is simulated, so no command runs there; start nodes"
            )
            raise errors.UnsupportedError(
                what, f"{reason} that run commands: strom up --process-nodes 2"
            )
        return pod, agent


class LocalConnection:
    """A TCP connection on this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        try:
            return await self._reader.read(CHUNK_BYTES)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        """Send bytes; a closed connection is ignored."""
        with contextlib.suppress(OSError):
            self._writer.write(data)
            await self._writer.drain()
