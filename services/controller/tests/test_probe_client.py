"""What a pod answers to a probe, over a real socket on loopback."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from stromboli.controller.core import commands
from stromboli.controller.execution import probe_client

SEEN = web.AppKey("seen", list[str])


@pytest.fixture
async def pod() -> AsyncIterator[tuple[int, list[str]]]:
    """A port that serves /ready to clients with the header, and the requested paths."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.path_qs)
        if request.path == "/elsewhere":
            return web.Response(status=302, headers={"Location": "/ready"})
        is_known = request.headers.get("X-Flow") == "yes"
        return web.Response(status=200 if is_known else 500)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1], seen
    await runner.cleanup()


def ask(port: int, path: str = "", header: tuple[str, str] = ("", "")) -> commands.RunProbe:
    question = commands.ProbeRequest(port=port, path=path, header=header)
    return commands.RunProbe(flow="", pod="", pod_uid="", host="127.0.0.1", question=question)


async def test_a_port_that_takes_a_connection_passes(pod: tuple[int, list[str]]) -> None:
    port, seen = pod
    assert await probe_client.probe(ask(port))
    assert not seen


async def test_a_path_passes_with_the_header_it_wants(pod: tuple[int, list[str]]) -> None:
    port, seen = pod
    assert await probe_client.probe(ask(port, "/ready?deep=1", ("X-Flow", "yes")))
    assert not await probe_client.probe(ask(port, "ready"))
    assert seen == ["/ready?deep=1", "/ready"]


async def test_a_redirection_passes_and_is_not_followed(pod: tuple[int, list[str]]) -> None:
    """It might lead anywhere, and the pod did answer."""
    port, seen = pod
    assert await probe_client.probe(ask(port, "/elsewhere"))
    assert seen == ["/elsewhere"]


@pytest.mark.parametrize(
    "requested",
    [ask(1), ask(70_000), ask(70_000, "/"), ask(1, "/"), ask(1, "/", ("X\r\nY", "z"))],
    ids=["closed", "no port", "no port for http", "closed for http", "a broken header"],
)
async def test_whatever_cannot_be_asked_has_not_passed(requested: commands.RunProbe) -> None:
    assert not await probe_client.probe(requested)
