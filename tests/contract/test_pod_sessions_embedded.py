"""Sessions in pods of process nodes, directly and over the WebSockets that ``strom up`` serves."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from embedded.tests.process_pods import NODE, Document, ProcessCluster, phase
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded import session_server
from stromboli.embedded.cluster import EmbeddedCluster, Kubelet
from stromboli.embedded.pod_sessions import EmbeddedPodSessions
from stromboli.embedded.processes import agent, launcher_client, machine
from stromboli.shared import errors
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes.pod_sessions import FixedAccess, WebSocketPodSessions
from stromboli.shared.cluster.pod_sessions import PodSessions
from stromboli.testkit import records
from stromboli.testkit.contracts.pod_sessions import POD, PodSessionsContract, run
from stromboli.testkit.parts import ports

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")
ECHO = """
import os, socket
with socket.create_server(("0.0.0.0", int(os.environ["PORT"]))) as server:
    print("on", flush=True)
    while True:
        connection, _ = server.accept()
        connection.sendall(connection.recv(100))
        connection.close()
"""


@pytest.fixture(scope="session", params=["namespaces", "plain"])
def view(request: pytest.FixtureRequest) -> str:
    best, _ = asyncio.run(machine.view())
    if request.param == "plain":
        return "plain"
    if best == "plain":
        pytest.skip("this machine allows no namespaces")
    return best


@pytest.fixture
def listening_port() -> int:
    return ports.free_ports(1)[0]


@pytest.fixture
async def direct(
    tmp_path: Path, view: str, listening_port: int
) -> AsyncIterator[EmbeddedPodSessions]:
    """A process node with the pod of the contract."""
    kubelets: dict[str, Kubelet] = {}
    async with EmbeddedCluster(tmp_path / "cluster.db", kubelets=kubelets) as cluster:
        process_cluster = ProcessCluster(cluster, kubelets, view)
        await process_cluster.start(tmp_path / "pods")
        environment = {"GREETING": "hello", "PORT": str(listening_port)}
        container = {
            "args": [ECHO],
            "workingDir": "/tmp",
            "env": [{"name": name, "value": value} for name, value in environment.items()],
        }
        await process_cluster.run(POD, sys.executable, "-c", container=container)
        pod = await process_cluster.until(POD, lambda it: phase(it) == "Running")
        async with cluster.logs("default", POD, port.LogQuery(follow=True)) as chunks:
            await anext(chunks)
        served = kubelets[NODE]
        assert isinstance(served, agent.ProcessNodeAgent)
        try:
            yield EmbeddedPodSessions(cluster, {NODE: served})
            async with asyncio.timeout(
                records.DEADLINE_S
            ):  # commands are killed after their clients have left
                while _commands(pod):  # noqa: ASYNC110 - no event for it
                    await asyncio.sleep(0.02)
        finally:
            await process_cluster.stop()


def _commands(pod: Document) -> bool:
    """Whether a command runs beside the container."""
    return len(launcher_client.processes_of(pod["metadata"]["uid"])) > 1


class TestEmbeddedPodSessions(PodSessionsContract):
    @pytest.fixture
    async def sessions(self, direct: EmbeddedPodSessions) -> PodSessions:
        return direct


async def _allow(_: Mapping[str, str], _namespace: str, _pod: str, _subresource: str) -> None:
    """Every client may open sessions."""


class TestServedPodSessions(PodSessionsContract):
    @pytest.fixture
    async def sessions(self, direct: EmbeddedPodSessions) -> AsyncIterator[PodSessions]:
        server = session_server.SessionServer(direct, _allow, ())
        async with session_server.serving(server) as url:
            yield WebSocketPodSessions(FixedAccess(url, {}))


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
async def test_without_the_token_of_the_server_no_session_opens(
    direct: EmbeddedPodSessions, headers: dict[str, str]
) -> None:
    authorize = session_server.authorizer(None, AdmissionSettings(), "right")
    server = session_server.SessionServer(direct, authorize, ())
    async with session_server.serving(server) as url:
        with pytest.raises(errors.ForbiddenError):
            await run(WebSocketPodSessions(FixedAccess(url, headers)), "true")
        right = FixedAccess(url, {"Authorization": "Bearer right"})
        assert (await run(WebSocketPodSessions(right), "true")).exit_code == 0


async def test_a_web_page_opens_no_session(direct: EmbeddedPodSessions) -> None:
    """Browsers let every page open WebSockets to loopback."""
    server = session_server.SessionServer(direct, _allow, ("127.0.0.1",))
    async with session_server.serving(server) as url:
        page = FixedAccess(url, {"Origin": "https://evil.example"})
        with pytest.raises(errors.ForbiddenError):
            await run(WebSocketPodSessions(page), "true")
