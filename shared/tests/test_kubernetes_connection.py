"""Requests, streams and credentials against a server that plays given answers."""

import asyncio
import concurrent.futures
import contextlib
import json
import pathlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
import trustme
from aiohttp import web
from kubernetes_asyncio.config import incluster_config

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster.kubernetes import (
    KubernetesCluster,
    KubernetesSettings,
    credentials,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A server's address."""
    runner = web.AppRunner(_app(handler), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _app(handler: Handler) -> web.Application:
    app = web.Application(client_max_size=1 << 24)

    async def handle(request: web.Request) -> web.StreamResponse:
        return await handler(request)

    app.router.add_route("*", "/{path:.*}", handle)
    return app


def kubeconfig(
    folder: pathlib.Path,
    server: str,
    user: dict[str, object] | None = None,
    cluster: dict[str, object] | None = None,
) -> str:
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server} | (cluster or {})}],
        "users": [{"name": "u", "user": user or {"token": "first"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return str(path)


class Script:
    """A handler that returns responses in order, the last one indefinitely, and records the
    requests.
    """

    def __init__(self, *answers: tuple[int, str] | Handler) -> None:
        self.answers = list(answers)
        self.requested: list[tuple[str, str, str]] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "")
        self.requested.append((request.method, request.path_qs, token))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            return await answer(request)
        code, body = answer
        headers = {"Retry-After": "0"} if code in (429, 503) else {}
        return web.Response(status=code, text=body, headers=headers)


@contextlib.asynccontextmanager
async def connected(
    folder: pathlib.Path, handler: Handler, user: dict[str, object] | None = None
) -> AsyncIterator[KubernetesCluster]:
    async with serving(handler) as address:
        settings = KubernetesSettings(kubeconfig=kubeconfig(folder, address, user))
        async with KubernetesCluster(settings, Random(1)) as opened:
            yield opened


async def test_a_read_is_retried_a_limited_number_of_times(tmp_path: pathlib.Path) -> None:
    script = Script((503, "starting"), (429, "busy"), (200, '{"ok":1}'))
    async with connected(tmp_path, script) as cluster:
        assert await cluster.get(kinds.PODS, "default", "p") == b'{"ok":1}'
        assert len(script.requested) == 3
        script.answers = [(503, "down")]
        with pytest.raises(errors.UnavailableError):
            await cluster.get(kinds.PODS, "default", "p")
        assert len(script.requested) == 6


async def test_the_servers_time_is_the_date_of_its_last_response(tmp_path: pathlib.Path) -> None:
    """A gateway's error has the gateway's date, and an invalid date is none."""
    dates = {"/2": "Sun, 06 Nov 1994 08:49:37 GMT", "/3": "soon", "/4": "6 Nov 94 08:49 -0000"}

    async def with_date(request: web.Request) -> web.StreamResponse:
        code = 502 if request.path.endswith("/5") else 404
        return web.Response(status=code, headers={"Date": dates.get(request.path[-2:], "")})

    async with connected(tmp_path, with_date) as cluster:
        assert cluster.server_time() is None
        times = []
        for name in ("5", "3", "4", "2"):
            with contextlib.suppress(errors.ExternalError):
                await cluster.get(kinds.PODS, "default", name)
            server_time = cluster.server_time()
            times.append(server_time and server_time.at)
    assert times == [None, None, None, datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)]


async def test_a_write_is_never_repeated(tmp_path: pathlib.Path) -> None:
    """Only the caller knows whether it may be."""
    script = Script((503, "starting"))
    async with connected(tmp_path, script) as cluster:
        with pytest.raises(errors.TransientError):
            await cluster.create(kinds.PODS, "default", b"{}")
        with pytest.raises(errors.TransientError):
            await cluster.delete(kinds.PODS, "default", "p")
    assert [method for method, _, _ in script.requested] == ["POST", "DELETE"]


async def test_a_lease_request_does_not_wait_for_others(tmp_path: pathlib.Path) -> None:
    """Else a service that has much to write would lose it for that, and all it knows with it."""
    answered = asyncio.Event()
    waiting = asyncio.Semaphore(0)

    async def slow_but_for_leases(request: web.Request) -> web.StreamResponse:
        if "/leases" not in request.path:
            waiting.release()
            await answered.wait()
        return web.Response(text="{}")

    async with connected(tmp_path, slow_but_for_leases) as cluster, asyncio.TaskGroup() as group:
        for _ in range(2 * KubernetesSettings().concurrency):
            group.create_task(cluster.create(kinds.PODS, "default", b"{}"))
        for _ in range(KubernetesSettings().concurrency):
            await waiting.acquire()
        assert await cluster.get(kinds.LEASES, "default", "l") == b"{}"
        assert await cluster.create(kinds.LEASES, "default", b"{}") == b"{}"
        patched = await cluster.patch(kinds.LEASES, "default", "l", b"{}", patch_type="merge")
        assert patched == b"{}"
        assert waiting.locked()  # no other request succeeded in between
        answered.set()


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: pathlib.Path) -> None:
    async with serving(Script((200, ""))) as address:
        pass
    settings = KubernetesSettings(kubeconfig=kubeconfig(tmp_path, address))
    async with KubernetesCluster(settings, Random(1)) as cluster:
        with pytest.raises(errors.UnavailableError):
            await cluster.create(kinds.PODS, "default", b"{}")
        with pytest.raises(errors.UnavailableError):
            await anext(cluster.watch(kinds.PODS, "1"))
        assert not await cluster.is_reachable()


async def test_a_list_with_an_expired_version_restarts(tmp_path: pathlib.Path) -> None:
    first = '{"metadata":{"resourceVersion":"7","continue":"t"},"items":[{"a":1}]}'
    whole = '{"metadata":{"resourceVersion":"9"},"items":[{"b":1},{"c":1}]}'
    script = Script((200, first), (410, "expired"), (200, whole))
    async with connected(tmp_path, script) as cluster:
        listing = await cluster.list(kinds.PODS, "ns", {"a": "1", "b": "2"})
    assert listing.items == (b'{"b":1}', b'{"c":1}')
    assert listing.resource_version == "9"
    selector = "labelSelector=a%3D1%2Cb%3D2"
    assert [path for _, path, _ in script.requested] == [
        f"/api/v1/namespaces/ns/pods?{selector}&limit=500",
        f"/api/v1/namespaces/ns/pods?{selector}&limit=500&continue=t",
        f"/api/v1/namespaces/ns/pods?{selector}",
    ]


async def test_a_broken_watch_ends_and_loses_only_the_cut_line(tmp_path: pathlib.Path) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"ADDED","object":{"a":"' + b"x" * 3_000_000 + b'"}}\n')
        await response.write(b'{"type":"MODIFIED","object":{"a":"cu')
        assert request.transport is not None
        request.transport.close()
        return response

    async with connected(tmp_path, stream) as cluster:
        watch_events = [event async for event in cluster.watch(kinds.PODS, "5")]
    assert [event.type for event in watch_events] == ["ADDED"]
    assert len(watch_events[0].object) == 3_000_008


async def test_a_watch_can_be_left_while_it_lasts(tmp_path: pathlib.Path) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"BOOKMARK","object":{}}\n')
        await asyncio.Event().wait()
        return response

    async with (
        connected(tmp_path, stream) as cluster,
        contextlib.aclosing(cluster.watch(kinds.PODS, "5")) as events,
    ):
        assert (await anext(events)).type == "BOOKMARK"


async def test_a_renewed_token_is_used_after_a_refusal(tmp_path: pathlib.Path) -> None:
    """After a 401 nothing was executed, so even a write is sent again, once."""
    token = tmp_path / "token"
    token.write_text("first")

    async def renew(_: web.Request) -> web.StreamResponse:
        token.write_text("second")
        return web.Response(status=401, text="Unauthorized")

    script = Script(renew, (201, "{}"), (401, "Unauthorized"))
    async with connected(tmp_path, script, {"tokenFile": str(token)}) as cluster:
        await cluster.create(kinds.PODS, "default", b"{}")
        with pytest.raises(errors.ForbiddenError):
            await cluster.create(kinds.PODS, "default", b"{}")
    tokens = [given for _, _, given in script.requested]
    assert tokens == ["Bearer first", *["Bearer second"] * 3]


async def test_an_invalid_configuration_is_reported_immediately(tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("clusters: [")
    for path, word in ((str(tmp_path / "absent"), "absent"), (str(broken), "broken")):
        with pytest.raises(errors.ConfigurationError, match=word):
            async with KubernetesCluster(KubernetesSettings(kubeconfig=path)):
                pass


@pytest.mark.parametrize("broken", ["gone", "empty"])
async def test_an_unreadable_service_account_token_is_worth_another_try(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The kubelet replaces it every hour; what goes wrong there may not end a service."""
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first\n")
    trustme.CA().cert_pem.write_to_path(authority)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    monkeypatch.setattr(incluster_config, "TOKEN_REFRESH_PERIOD", timedelta(0))
    access = credentials.Credentials(KubernetesSettings())
    await access.load()
    assert await access.headers() == {"Authorization": "Bearer first"}
    if broken == "gone":
        token.unlink()
    else:
        token.write_text("")
    with pytest.raises(errors.UnavailableError, match=r"[Tt]oken"):
        await access.headers()
    token.write_text("second")
    assert await access.headers() == {"Authorization": "Bearer second"}


async def test_no_connection_outlives_the_client(tmp_path: pathlib.Path) -> None:
    """A cancelled request leaves a TLS connection that waits for the server's end of it; with the
    loop closed before, its socket is never released.
    """
    authority, certificate = trustme.CA(), tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(certificate)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)

    def read_request() -> socket.socket:
        """The bare socket of a server that does not answer."""
        accepted = tls.wrap_socket(listening.accept()[0], server_side=True)
        assert accepted.recv(1 << 16).startswith(b"POST ")
        return socket.socket(fileno=accepted.detach())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        address = f"https://127.0.0.1:{listening.getsockname()[1]}"
        path = kubeconfig(tmp_path, address, cluster={"certificate-authority": str(certificate)})
        async with KubernetesCluster(KubernetesSettings(kubeconfig=path), Random(1)) as cluster:
            request = asyncio.create_task(cluster.create(kinds.PODS, "default", b"{}"))
            accepted = await asyncio.to_thread(read_request)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
    with accepted:
        accepted.settimeout(5)
        while await asyncio.to_thread(accepted.recv, 1 << 16):
            pass


class Threads(concurrent.futures.ThreadPoolExecutor):
    """Threads of the event loop; counts the calls."""

    calls = 0

    def submit(self, *given: Any, **options: Any) -> concurrent.futures.Future[Any]:
        """See ``Executor``."""
        self.calls += 1
        return super().submit(*given, **options)


async def test_a_server_on_another_machine_is_called_through_the_proxy_of_the_environment(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script((200, "{}"))
    async with serving(script) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        kubernetes_settings = KubernetesSettings(
            kubeconfig=kubeconfig(tmp_path, "http://api.example.test")
        )
        async with KubernetesCluster(kubernetes_settings, Random(1)) as cluster:
            assert await cluster.get(kinds.PODS, "default", "p") == b"{}"
    assert script.requested == [("GET", "/api/v1/namespaces/default/pods/p", "Bearer first")]


async def test_a_server_on_another_machine_is_called_without_a_thread(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hops to a thread for each request cost more CPU than the request."""
    threads = Threads()
    asyncio.get_running_loop().set_default_executor(threads)
    async with serving(Script((200, "{}"))) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        kubernetes_settings = KubernetesSettings(
            kubeconfig=kubeconfig(tmp_path, "http://api.example.test")
        )
        async with KubernetesCluster(kubernetes_settings, Random(1)) as cluster:
            await cluster.get(kinds.PODS, "default", "p")
            before = threads.calls
            await cluster.get(kinds.PODS, "default", "p")
            assert threads.calls == before


async def test_a_password_for_the_server_in_netrc_is_not_used(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubeconfig has the credentials. aiohttp raises ValueError where there are two."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine api.example.test login someone password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    script = Script((200, "{}"))
    async with serving(script) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        kubernetes_settings = KubernetesSettings(
            kubeconfig=kubeconfig(tmp_path, "http://api.example.test")
        )
        async with KubernetesCluster(kubernetes_settings, Random(1)) as cluster:
            await cluster.get(kinds.PODS, "default", "p")
    assert [token for _, _, token in script.requested] == ["Bearer first"]
