"""Watches and waits: events, their order, and interrupted connections."""

import asyncio
import contextlib
import io
import itertools
import math
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.client import AsyncClient, Client, errors, job, watch_state
from stromboli.client.events import Change, Event, Parser
from stromboli.client.operations import calls
from stromboli.embedded import system
from stromboli.embedded.nodes import simulated
from stromboli.shared import keys
from stromboli.testkit import records

T = TypeVar("T")
PROBLEM = {"content-type": calls.PROBLEM}
SECONDS = {keys.RUN_SECONDS: "0"}


def test_a_job_is_awaited_to_its_end(url: str) -> None:
    with Client(url) as client:
        client.submit(job("short", image="busybox", replicas=2, annotations=SECONDS))
        done = client.wait("short", timeout_s=records.DEADLINE_S)
        assert (done.status.state.phase, done.status.succeeded) == ("Completed", 2)


async def test_a_job_is_awaited_until_it_runs(url: str) -> None:
    async with AsyncClient(url) as client:
        await client.submit(job("running", image="busybox", annotations={keys.RUN_SECONDS: "60"}))
        found = await client.wait("running", phases=["Running"], timeout_s=records.DEADLINE_S)
        assert found.status.state.phase == "Running"
        pods = client.watch(calls.watch_job_pods("default", "running"))
        first = await anext(pods)
        assert (first.type, first.object and first.object.metadata.namespace) == (
            "added",
            "default",
        )
        await pods.aclose()
        await client.delete("running")


async def test_a_timeout_is_an_error_with_the_present_phase(url: str) -> None:
    wide = job("never", image="busybox", replicas=99, requests={"cpu": "1"})
    with Client(url) as client:
        client.submit(wide)
        with pytest.raises(errors.TimedOutError, match="still Pending after"):
            client.wait("never", timeout_s=0.3)
        reasons = client.watch(
            calls.watch_explanation("default", "never"), timeout_s=records.DEADLINE_S
        )
        tiers = (
            each.object.explained.tier for each in reasons if each.object and each.object.explained
        )
        assert next(tiers) in ("enqueue", "gang", "resources", "never-fits")
        client.delete("never")


async def test_waiting_for_a_deleted_job_ends(url: str) -> None:
    async with AsyncClient(url) as client:
        wide = job("leaves", image="busybox", replicas=99, requests={"cpu": "1"})
        await client.submit(wide)
        waiting = asyncio.create_task(client.wait("leaves", timeout_s=records.DEADLINE_S))
        changes = client.watch(calls.watch_job("default", "leaves"))
        await anext(changes)
        await client.delete("leaves")
        with pytest.raises(errors.GoneError):
            await waiting
        async for change in changes:
            if change.type == "deleted":
                break
        await changes.aclose()


@pytest.mark.parametrize("name", ["none"])
def test_a_job_that_is_not_there_is_not_awaited(url: str, name: str) -> None:
    with Client(url) as client, pytest.raises(errors.NotFoundError):
        client.wait(name)


def test_watching_an_unreachable_server_fails_immediately() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(errors.UnreachableError):
        next(client.watch(calls.watch_jobs()))


async def test_a_watch_continues_after_a_restart_of_the_server(tmp_path: Path) -> None:
    """Its stream ends with the server; no event is missed or repeated."""
    nodes = tuple(simulated.node_documents(1, cpu="4", memory="8Gi"))
    wide = job("before", image="busybox", requests={"cpu": "9"})  # waits indefinitely
    async with contextlib.AsyncExitStack() as stack:
        first = system.Options(state=tmp_path, nodes=nodes)
        running = await stack.enter_async_context(system.run_system(first))
        await running.ready()
        async with AsyncClient(running.url) as client:
            await client.submit(wide)
            changes = client.watch(calls.watch_job("default", "before"))
            assert (await anext(changes)).type == "added"
            assert (await anext(changes)).type == "synced"
            await stack.aclose()
            again = system.Options(state=tmp_path, port=httpx.URL(running.url).port or 0)
            async with system.run_system(again), asyncio.timeout(records.DEADLINE_S):
                deleting = asyncio.create_task(client.delete("before"))
                reported = {change.type async for change in _until(changes, "deleted")}
                await deleting
                assert reported <= {"modified", "deleted"}


def test_waiting_reports_every_change_and_an_unreachable_server() -> None:
    """And continues as soon as the server responds again."""
    requested: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requested.append(request.url.path)
        if len(requested) == 2:
            raise httpx.ConnectError("refused")
        phase = "Running" if len(requested) == 1 else "Completed"
        document = {"metadata": {"name": "a", "uid": "u"}, "status": {"state": {"phase": phase}}}
        if not requested[-1].startswith("/v1/watch"):
            return httpx.Response(200, json=document)
        body = f"event: modified\ndata: {httpx.Response(200, json=document).text}\n\n"
        return httpx.Response(200, text=body, headers={"content-type": "text/event-stream"})

    seen: list[str] = []
    with Client("http://s", transport=httpx.MockTransport(answer)) as client:
        done = client.wait(
            "a",
            on_change=lambda job: seen.append(job.status.state.phase),
            on_break=lambda error: seen.append(error.reason),
        )
    assert (done.status.state.phase, seen) == ("Completed", ["Running", "refused", "Completed"])


def test_a_user_who_may_get_but_not_watch_a_job_can_wait_for_it() -> None:
    """A tenant's role need not contain watch; a forbidden watch is reported at the start."""
    requested: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requested.append(request.url.path)
        if request.url.path.startswith("/v1/watch") or request.url.path.endswith("/hidden"):
            return httpx.Response(403, json={"detail": "no"}, headers=PROBLEM)
        phase = "Running" if len(requested) == 1 else "Completed"
        document = {"metadata": {"name": "a", "uid": "u"}, "status": {"state": {"phase": phase}}}
        return httpx.Response(200, json=document)

    with Client("http://s", transport=httpx.MockTransport(answer)) as client:
        assert client.wait("a").status.state.phase == "Completed"
        with pytest.raises(errors.ForbiddenError):
            client.wait("hidden")


@given(
    timeout_s=st.floats(0, 1e6) | st.none(),
    steps_s=st.lists(st.floats(0, 100, allow_subnormal=False), max_size=40),
)
def test_delays_never_exceed_the_remaining_time(
    timeout_s: float | None, steps_s: list[float]
) -> None:
    """Nor negative, which no sleep accepts: time passes between two reads of the clock."""
    awaited = watch_state.JobWait("job a", frozenset(), timeout_s, 0.0)
    for now in itertools.accumulate(steps_s):
        try:
            pause_s = awaited.pause_s(now)
        except errors.TimedOutError:
            assert timeout_s is not None
            assert now >= timeout_s
            return
        assert 0 < pause_s <= min(awaited.left_s(now) or math.inf, watch_state.LONGEST_PAUSE_S)


async def _until(changes: AsyncGenerator[Change[T], None], last: str) -> AsyncIterator[Change[T]]:
    async for change in changes:
        yield change
        if change.type == last:
            return


def test_events_are_parsed_according_to_the_standard() -> None:
    """An id stays valid until the next one; a comment or an id alone is no event; an incomplete
    event is ignored.
    """
    parser = Parser()
    lines = ["id: 7", "event: added", "data: 1", "data:2", "", ": alive", "id: 9", "", "data: cut"]
    events = [event for line in lines if (event := parser.feed(line))]
    assert events == [Event("added", "1\n2")]
    assert parser.last_id == "9"
    parser.broken()
    assert parser.feed("") is None


def test_a_reconnection_sends_the_last_event_id() -> None:
    requested: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requested.append(request.headers.get("last-event-id"))
        if len(requested) == 2:
            return httpx.Response(503, json={"detail": "wait"}, headers=PROBLEM)
        if len(requested) == 3:
            raise httpx.ReadError("broken")
        body = f"id: {len(requested)}\nevent: synced\ndata: {{}}\n\n"
        return httpx.Response(200, text=body, headers={"content-type": "text/event-stream"})

    with Client("http://s", transport=httpx.MockTransport(answer)) as client:
        changes = client.watch(calls.watch_jobs())
        assert [next(changes).type, next(changes).type] == ["synced", "synced"]
    assert requested == [None, "1", "1", "1"]


def test_the_lines_of_the_readme_run(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged, each line of the first example."""
    text = (Path(__file__).parents[1] / "README.md").read_text()
    example = text.split("```python\n")[1].split("```")[0]
    monkeypatch.setenv("STROM_SERVER", url)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(example, "README.md", "exec"), {})
    assert said.getvalue().splitlines()[-1] == "Completed"
    assert len([line for line in example.splitlines() if line.strip()]) == 5
