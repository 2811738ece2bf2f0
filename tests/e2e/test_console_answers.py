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
        for path in (
            "/history?job=train",
            "/usage?by=user",
            "/decisions?job=train",
            "/changes?kind=Node",
        ):
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
        "node": "node-07",
    }

    @get("/v1/history/evictions")
    async def evictions() -> dict[str, Any]:
        return {"evictions": [eviction]}

    async with over(evictions) as browser:
        text = (await browser.get("/decisions?namespace=vision")).text
        assert "a job in another namespace" in text
        assert 'href="/jobs/vision/train"' in text
        assert "robots" not in text
        assert 'href="/nodes/node-07"' in text
        hidden = (await browser.get("/decisions?namespace=robots")).text
        assert "node-07" not in hidden, "where pods of another namespace were"
        moved = await browser.get("/evictions?namespace=vision&job=a%26b")
        assert httpx.URL(moved.headers["location"]).path == "/decisions"
        assert dict(httpx.URL(moved.headers["location"]).params) == {
            "namespace": "vision",
            "job": "a&b",
        }
        assert 'href="/jobs/robots/secret-of-robots"' in (await browser.get("/decisions")).text


async def test_system_health_shows_how_long_sessions_take() -> None:
    health: dict[str, Any] = {"at": "2026-11-23T12:00:30Z", "problems": {}, "warnings": {}}

    @get("/v1/health")
    async def system() -> dict[str, Any]:
        return health

    async with over(system) as browser:
        assert "No session was measured yet" in (await browser.get("/system")).text
        health["sessions"] = {
            "at": "2026-11-23T12:00:00Z",
            "sessions": 812,
            "p50S": 0.0123,
            "p99S": 0.25,
        }
        text = (await browser.get("/system")).text
        assert "up to 12.3 ms" in text
        assert "up to 250.0 ms" in text
        assert "812 sessions" in text


async def test_changes_show_what_differs_as_text_and_lead_to_their_objects() -> None:
    fields = [{"field": f"labels.l{at}", "before": "", "after": "<b>x</b>"} for at in range(14)]
    known = {"at": "2026-11-23T12:00:00Z", "kind": "Node"}
    found = [
        {**known, "name": "node-07", "action": "changed", "fields": fields},
        {**known, "name": "node-06", "action": "deleted", "fields": []},
        {**known, "kind": "PriorityClass", "name": "high", "action": "created", "fields": []},
    ]
    requested: dict[str, str] = {}

    @get("/v1/history/changes")
    async def changes(request: Request[Any, Any, Any]) -> dict[str, Any]:
        requested.update({name: values[-1] for name, values in request.query_params.dict().items()})
        return {"changes": found, "continue": "12.x"}

    async with over(changes) as browser:
        text = (await browser.get("/changes?kind=Node&name=n&since=2026-11-01&until=x")).text
        assert requested == {
            "kind": "Node",
            "name": "n",
            "since": "2026-11-01T00:00:00+00:00",
            "limit": "100",
        }
        assert 'href="/nodes/node-07"' in text
        assert 'href="/nodes/node-06"' not in text, "it was deleted"
        assert "<b>labels.l0</b>: none → &lt;b&gt;x&lt;/b&gt;" in text
        assert "and 2 more fields" in text
        assert "after=12.x" in text


async def test_a_log_is_followed_line_by_line_until_it_ends() -> None:
    """The stream begins with what there is, so that a page that was hidden misses nothing."""
    requested: dict[str, str] = {}

    @get("/v1/namespaces/{namespace:str}/pods/{pod:str}/log", media_type="text/plain")
    async def log(
        request: Request[Any, Any, Any], namespace: FromPath[str], pod: FromPath[str]
    ) -> Stream:
        requested.update({name: values[-1] for name, values in request.query_params.dict().items()})

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
        assert requested == {
            "uid": "u1",
            "container": "main",
            "follow": "true",
            "tailLines": "1000",
        }
