"""Logs of a job's attempts, followed while the page is shown."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar import get
from litestar.params import FromPath
from litestar.response import Stream
from litestar.types import ControllerRouterHandler

from stromboli.client import errors, job_logs
from stromboli.client.operations import calls, log_calls
from stromboli.console.core import log_choices
from stromboli.console.live_rows import HEARTBEAT_S
from stromboli.console.pages.live import ALIVE, EVENT_STREAM, STREAM_HEADERS
from stromboli.console.pages.requests import Console, Page, Web, allowed, gather, query_of
from stromboli.console.sessions import Session
from stromboli.shared.api import core, kinds

LOG_LINES = 1000
"""Lines of a log that a page shows: the last ones."""
MOST_LOG_BYTES = 512 * 1024


def routes(console: Console) -> list[ControllerRouterHandler]:
    """The page of logs, and the stream that it follows."""

    @get("/jobs/{namespace:str}/{name:str}/logs")
    async def logs(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Page:
        session, query = console.session(request), query_of(request)
        history, page = await gather(
            allowed(session.client.tasks(name, namespace)),
            session.client.send(calls.job_pods(namespace, name)),
        )
        pods: list[core.Pod] = [kinds.PODS.decode(item) for item in page.items]
        attempts = () if isinstance(history, errors.ForbiddenError) else history.tasks
        choices = log_choices.choices(attempts, pods)
        chosen = log_choices.chosen(choices, query)
        previous = query.get("previous") == "true"
        text, problem, follow = "", "", ""
        if chosen is not None:
            choice = chosen.choice
            call = log_calls.log(
                namespace,
                choice.pod,
                chosen.container,
                previous=previous,
                tail_lines=LOG_LINES,
                uid=choice.uid,
            )
            text, problem = await _log(session, call)
            if choice.grows and not previous and not problem:
                follow = _follow_path(namespace, chosen)
        return console.page(
            session,
            "logs.html",
            section="jobs",
            namespace=namespace,
            name=name,
            choices=choices,
            chosen=chosen,
            previous=previous,
            text=text,
            problem=problem,
            follow=follow,
            follows=bool(follow),
            lines=LOG_LINES,
        )

    @get("/live/log/{namespace:str}/{pod:str}")
    async def live_log(request: Web, namespace: FromPath[str], pod: FromPath[str]) -> Stream:
        session, query = console.session(request), query_of(request)
        call = log_calls.log(
            namespace,
            pod,
            query.get("container", ""),
            uid=query.get("uid", ""),
            follow=True,
            tail_lines=LOG_LINES,
        )
        return Stream(
            _followed(console, session, call), media_type=EVENT_STREAM, headers=STREAM_HEADERS
        )

    return [logs, live_log]


def _follow_path(namespace: str, chosen: log_choices.Chosen) -> str:
    segment = calls.path_segment
    return (
        f"/live/log/{segment(namespace)}/{segment(chosen.choice.pod)}"
        f"?uid={segment(chosen.choice.uid)}&container={segment(chosen.container)}"
    )


async def _followed(
    console: Console, session: Session, call: calls.Call[bytes]
) -> AsyncIterator[bytes]:
    """The lines of a log as events: ``reset`` before the first ones, ``lines`` with a JSON list,
    ``ended`` with the reason, empty for the end of the log."""
    yield _event("reset", "")
    try:
        async with session.client.stream(call) as chunks:
            buffer = job_logs.LineBuffer()
            async for chunk in _with_heartbeats(chunks):
                if not await console.continues(session):
                    return
                if chunk is None:
                    yield ALIVE
                elif lines := list(buffer.feed(chunk)):
                    yield _event("lines", lines)
            if rest := list(buffer.end()):
                yield _event("lines", rest)
    except errors.ClientError as error:
        yield _event("ended", error.reason)
        return
    yield _event("ended", "")


async def _with_heartbeats(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes | None]:
    """The chunks, and None after each ``HEARTBEAT_S`` without one."""
    coming = asyncio.ensure_future(anext(chunks, None))
    try:
        while True:
            done, _ = await asyncio.wait([coming], timeout=HEARTBEAT_S)
            if not done:
                yield None
                continue
            chunk = coming.result()
            if chunk is None:
                return
            yield chunk
            coming = asyncio.ensure_future(anext(chunks, None))
    finally:
        coming.cancel()


def _event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {msgspec.json.encode(data).decode()}\n\n".encode()


async def _log(session: Session, call: calls.Call[bytes]) -> tuple[str, str]:
    """The end of a log, and the reason if the log cannot be read."""
    tail = bytearray()
    try:
        async with session.client.stream(call) as chunks:
            async for chunk in chunks:
                tail += chunk
                if len(tail) > 2 * MOST_LOG_BYTES:
                    del tail[:-MOST_LOG_BYTES]
    except (errors.ResponseError, errors.UnreadableError) as error:
        return "", error.reason
    return bytes(tail[-MOST_LOG_BYTES:]).decode(errors="replace"), ""
