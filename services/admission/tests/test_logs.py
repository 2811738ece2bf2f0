"""The log of a pod over REST: plain bytes as they are written, errors as problem+json."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import httpx
import pytest

from stromboli.admission.rest import application
from stromboli.admission.rest.routes import logs
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects

LOG = "/v1/namespaces/default/pods/p/log"


class EchoKubelet:
    """A node whose containers have written the requested text."""

    @contextlib.asynccontextmanager
    async def logs(
        self, uid: str, query: port.LogQuery
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        async def chunks() -> AsyncGenerator[bytes, None]:
            yield f"{query.container} {query.tail_lines} ".encode()
            yield b"\xff\n"

        yield chunks()

    @contextlib.asynccontextmanager
    async def deleted_logs(
        self, namespace: str, name: str, query: port.LogQuery
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        if query.uid != "kept":
            raise errors.NotFoundError(f"log of {namespace}/{name}", "not kept")
        async with self.logs(query.uid, query) as chunks:
            yield chunks


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with EmbeddedCluster(
        tmp_path / "cluster.db", kubelets={"real": EchoKubelet()}
    ) as cluster:
        for name, node in (("p", "real"), ("simulated", "other"), ("waiting", "")):
            pod = objects.read(await cluster.create(kinds.PODS, "default", objects.pod(name)))
            if node:
                uid = pod["metadata"]["uid"]
                await cluster.bind("default", name, uid=uid, node=node, annotations={})
        transport = httpx.ASGITransport(app=application.app([logs.route(cluster)]))  # type: ignore[arg-type]  # same ASGI, other types
        async with httpx.AsyncClient(transport=transport, base_url="http://door") as async_client:
            yield async_client


async def test_a_log_is_returned_byte_for_byte(client: httpx.AsyncClient) -> None:
    answer = await client.get(LOG, params={"tailLines": 3, "follow": "true"})
    assert (answer.status_code, answer.content) == (200, b"main 3 \xff\n")
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("pod", "status", "said"),
    [
        ("none", 404, "none"),
        ("waiting", 422, "no node yet"),
        ("simulated", 501, "--process-nodes"),
        ("p", 422, "there are main"),
    ],
)
async def test_an_unreadable_log_is_a_problem_with_the_reason(
    client: httpx.AsyncClient, pod: str, status: int, said: str
) -> None:
    container = "other" if pod == "p" else ""
    path = f"/v1/namespaces/default/pods/{pod}/log"
    answer = await client.get(path, params={"container": container})
    assert answer.status_code == status
    assert said in answer.json()["detail"]


async def test_the_log_of_a_deleted_pod_is_read_by_its_uid(client: httpx.AsyncClient) -> None:
    kept = await client.get(LOG, params={"uid": "kept", "container": "main"})
    assert (kept.status_code, kept.content) == (200, b"main None \xff\n")
    dropped = await client.get(LOG, params={"uid": "other", "container": "main"})
    assert dropped.status_code == 404
    assert "the pod is deleted, and no node has kept its log" in dropped.json()["detail"]
