"""REST on loopback: for the user who started it, and for no page of a browser and no other user."""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from stromboli.client import AsyncClient
from stromboli.embedded import system
from stromboli.shared import loopback_token
from stromboli.testkit import records

JOB = {
    "metadata": {"name": "driven-by"},
    "spec": {
        "minAvailable": 1,
        "tasks": [
            {
                "name": "t",
                "replicas": 1,
                "template": {"spec": {"containers": [{"name": "c", "image": "busybox"}]}},
            }
        ],
    },
}
JOBS = "/v1/namespaces/default/jobs"
JSON = {"content-type": "application/json"}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[system.System]:
    folder = tmp_path_factory.mktemp("system")
    async with system.run_system(system.Options(state=folder / "embedded")) as made:
        await made.ready()
        yield made


def port_of(running: system.System) -> int:
    return httpx.URL(running.url).port or 80


async def sent(running: system.System, method: str, path: str, **rest: Any) -> httpx.Response:
    """A raw request with the right token: what is refused, is refused for its other headers."""
    headers = {"authorization": f"Bearer {running.token}", **rest.pop("headers", {})}
    async with httpx.AsyncClient(base_url=running.url, timeout=30) as client:
        return await client.request(method, path, headers=headers, **rest)


async def names(running: system.System) -> list[str]:
    async with running.client() as client:
        return [it["metadata"]["name"] for it in (await client.get(JOBS)).json()["items"]]


@pytest.mark.parametrize("declared", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_body_that_is_not_declared_as_json_is_refused(
    running: system.System, declared: str
) -> None:
    """A page of any site may send it without a preflight request."""
    body = httpx.Response(200, json=JOB).content
    headers = {"content-type": declared} if declared else {}
    answer = await sent(running, "POST", JOBS, content=body, headers=headers)
    assert answer.status_code == 415, answer.text
    assert "application/json" in answer.json()["detail"]
    assert await names(running) == []


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost@evil.example"]
)
async def test_a_foreign_host_is_refused(running: system.System, method: str, host: str) -> None:
    """A name of a page's own that resolves to loopback would be same-origin with us."""
    answer = await sent(running, method, JOBS, json=JOB, headers={"host": host})
    assert answer.status_code == 421, answer.text


@pytest.mark.parametrize("host", ["127.0.0.1", "127.44.121.1", "localhost", "LOCALHOST.", "[::1]"])
async def test_each_name_of_loopback_is_known_with_any_port(
    running: system.System, host: str
) -> None:
    """Ports change behind a tunnel."""
    for port in ("", ":9999"):
        answer = await sent(running, "GET", JOBS, headers={"host": f"{host}{port}"})
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", [JOBS, "/v1/watch/jobs", "/v1/queues", "/readyz", "/metrics"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=lambda headers: "=".join(*headers.items()),
)
async def test_a_foreign_page_is_refused_also_for_reads_and_streams(
    running: system.System, path: str, headers: dict[str, str]
) -> None:
    answer = await sent(running, "GET", path, headers=headers)
    assert answer.status_code == 403, answer.text


async def test_a_page_of_the_server_itself_may_send_requests(running: system.System) -> None:
    """Its own description of the API tries requests out."""
    headers = {"origin": running.url, "sec-fetch-site": "same-origin"}
    answer = await sent(running, "GET", JOBS, headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("token", ["", "another"])
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", JOBS), ("GET", "/metrics"), ("GET", "/v1/watch/jobs"), ("POST", JOBS)],
)
async def test_no_other_user_of_the_machine_is_enqueued(
    running: system.System, token: str, method: str, path: str
) -> None:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(base_url=running.url, timeout=records.DEADLINE_S) as client:
        answer = await client.request(method, path, json=JOB, headers=headers)
    assert answer.status_code == 401, answer.text
    assert await names(running) == []


async def test_agents_of_nodes_need_the_token_too(running: system.System) -> None:
    async with httpx.AsyncClient(base_url=running.agents_url, timeout=records.DEADLINE_S) as client:
        answer = await client.put("/v1/nodes/n1/topology", content=b"{}")
        assert answer.status_code == 401
        shown = {"authorization": f"Bearer {running.token}"}
        answer = await client.put("/v1/nodes/n1/topology", content=b"{}", headers=shown)
        assert answer.status_code == 404


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/schema"])
async def test_probes_and_the_description_need_no_token(running: system.System, path: str) -> None:
    async with httpx.AsyncClient(
        base_url=running.url, follow_redirects=True, timeout=records.DEADLINE_S
    ) as client:
        assert (await client.get(path)).status_code == 200


async def test_clients_of_the_same_user_find_the_token_by_themselves(
    running: system.System,
) -> None:
    async with AsyncClient(running.url) as client:
        assert [queue.metadata.name for queue in await client.queues()]
    async with AsyncClient(f"http://localhost:{port_of(running)}") as client:
        assert [queue.metadata.name for queue in await client.queues()]


async def test_token_and_state_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    """Also in a folder that an earlier version made readable for all."""
    state = tmp_path / "state" / "embedded"
    state.mkdir(parents=True, mode=0o755)
    async with system.run_system(system.Options(state=state)) as made:
        file = loopback_token.file_of(port_of(made), os.environ)
        assert loopback_token.read_token(file) == made.token
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in state.iterdir()}
        assert modes.keys() >= {"log.db", "cluster.db", "log.db-wal", "cluster.db-wal"}
        assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not file.exists()


async def test_each_start_creates_another_token(tmp_path: Path) -> None:
    tokens = set()
    for _ in range(2):
        async with system.run_system(system.Options(state=tmp_path)) as made:
            tokens.add(made.token)
    assert len(tokens) == 2
