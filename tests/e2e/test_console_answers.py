"""The console over a server of a test: what it shows of answers that a small system never gives."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
from litestar import Litestar, Request, Response, get
from litestar.params import FromPath
from litestar.response import Stream

from stromboli.console.settings import ConsoleSettings
from stromboli.shared.runtime import http
from stromboli.testkit import records
from tests.e2e.support import console_system


@get("/v1/me")
async def me() -> dict[str, str]:
    """The user of a server that answers only what a test needs."""
    return {"name": "vera"}


@contextlib.asynccontextmanager
async def over(*routes: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that is logged in to a console over a server with these routes alone."""
    bound = http.listen("127.0.0.1", 0)
    async with http.serving(Litestar([me, *routes], openapi_config=None), bound) as port:
        settings = ConsoleSettings(server=f"http://127.0.0.1:{port}")
        async with (
            console_system.serving(settings) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=records.DEADLINE_S) as browser,
        ):
            await browser.post("/login", data={"token": "t"})
            yield browser


async def test_a_server_without_a_history_is_a_notice_beside_the_filters() -> None:
    """All other pages work without it."""

    @get("/v1/history/{what:str}")
    async def past(what: FromPath[str]) -> Response[bytes]:
        detail = b'{"status": 503, "detail": "this server runs without a history service"}'
        return Response(detail, status_code=503, media_type="application/problem+json")

    async with over(past) as browser:
        for path in ("/history?job=train", "/usage?by=user", "/evictions?job=train"):
            answer = await browser.get(path)
            assert answer.status_code == 200
            assert "this server runs without a history service" in answer.text
            assert 'role="search"' in answer.text


async def test_evictions_name_jobs_of_other_namespaces_to_readers_of_all_alone() -> None:
    """Also if REST named them."""
    eviction = {
        "decision": "scheduler/0/1",
        "namespace": "vision",
        "pod": "train-worker-0",
        "podUid": "p",
        "job": "train",
        "uid": "u",
        "byNamespace": "robots",
        "byPodGroup": "secret-of-robots-1",
        "byJob": "secret-of-robots",
        "byUid": "w",
        "reason": "preempt",
        "at": "2026-11-23T12:00:00Z",
    }

    @get("/v1/history/evictions")
    async def evictions() -> dict[str, Any]:
        return {"evictions": [eviction]}

    async with over(evictions) as browser:
        text = (await browser.get("/evictions?namespace=vision")).text
        assert "a job in another namespace" in text
        assert 'href="/jobs/vision/train"' in text
        assert "robots" not in text
        assert 'href="/jobs/robots/secret-of-robots"' in (await browser.get("/evictions")).text


async def test_a_log_is_followed_line_by_line_until_it_ends() -> None:
    """The stream begins with what there is, so that a page that was hidden misses nothing."""
    asked: dict[str, str] = {}

    @get("/v1/namespaces/{namespace:str}/pods/{pod:str}/log", media_type="text/plain")
    async def log(
        request: Request[Any, Any, Any], namespace: FromPath[str], pod: FromPath[str]
    ) -> Stream:
        asked.update({name: values[-1] for name, values in request.query_params.dict().items()})

        async def written() -> AsyncIterator[bytes]:
            for part in (b"epoch 1\nepo", b"ch 2\n", b"<b>done</b>"):
                yield part

        return Stream(written())

    async with over(log) as browser:
        answer = await browser.get("/live/log/vision/train-worker-0?uid=u1&container=main")
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [block.split("\n") for block in answer.text.strip().split("\n\n")]
        assert events[0][0] == "event: reset"
        assert events[-1] == ["event: ended", 'data: ""']
        lines = [
            line
            for event, data in events
            if event == "event: lines"
            for line in msgspec.json.decode(data.removeprefix("data: "))
        ]
        assert lines == ["epoch 1", "epoch 2", "<b>done</b>"]
        assert asked == {
            "uid": "u1",
            "container": "main",
            "follow": "true",
            "tailLines": "1000",
        }
