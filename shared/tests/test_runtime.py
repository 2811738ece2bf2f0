"""Health, retries and the end of a process."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest
import uvloop

from stromboli.shared import errors
from stromboli.shared.runtime import http, runtime
from stromboli.testkit import records
from stromboli.testkit.doubles import virtual_time


def test_a_service_without_facts_is_not_ready() -> None:
    health = runtime.Health("monitor")
    assert not health.is_ready
    assert health.problems == {"monitor": "starting"}


def test_one_problem_is_enough_not_to_be_ready() -> None:
    health = runtime.Health("monitor")
    health.set("log", None)
    health.set("cluster", "away")
    assert health.problems == {"cluster": "away"}
    health.set("cluster", None)
    assert health.is_ready


def test_delays_double_up_to_a_limit_and_honour_retry_after() -> None:
    backoff = runtime.Backoff(now=lambda: 0.0)
    pauses = [backoff.next_s() for _ in range(12)]
    assert pauses[0] < 2 * runtime.FIRST_PAUSE_S
    assert max(pauses) <= 1.2 * runtime.LONGEST_PAUSE_S
    assert backoff.next_s(at_least_s=60) == 60


def test_delays_reset_after_a_calm_as_long_as_the_longest() -> None:
    """A loop that runs for weeks need not report each success."""
    now = 0.0
    backoff = runtime.Backoff(now=lambda: now)

    def fails_after(calm_s: float) -> float:
        nonlocal now
        now += calm_s
        pause_s = backoff.next_s()
        now += pause_s
        return pause_s

    assert max(fails_after(0.0) for _ in range(12)) > 0.7 * runtime.LONGEST_PAUSE_S
    assert fails_after(0.9 * runtime.LONGEST_PAUSE_S) > 0.7 * runtime.LONGEST_PAUSE_S
    assert fails_after(1.1 * runtime.LONGEST_PAUSE_S) < 2 * runtime.FIRST_PAUSE_S


async def test_a_transient_error_is_a_problem_until_the_call_succeeds() -> None:
    health = runtime.Health("controller")
    seen: list[dict[str, str]] = []

    async def call() -> int:
        seen.append(health.problems)
        if len(seen) < 3:
            raise errors.UnavailableError("GET /x", "refused")
        return 7

    assert await runtime.retry_until_available(call, "cluster", health) == 7
    assert seen[2] == {"cluster": "GET /x: refused"}
    assert health.is_ready


async def test_ready_and_metrics_are_served_over_http() -> None:
    health = runtime.Health("monitor")
    bound = http.listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    async with (
        http.serving(http.health_app(health), bound),
        httpx.AsyncClient(base_url=url, timeout=records.DEADLINE_S) as client,
    ):
        assert (await client.get("/livez")).text == "ok\n"
        waiting = await client.get("/readyz")
        health.set("log", None)
        ready = await client.get("/readyz")
        metrics = await client.get("/metrics")
    assert waiting.status_code == 503
    assert waiting.json() == {"monitor": {"monitor": "starting"}}
    assert ready.status_code == 200
    assert b"python_info" in metrics.content
    assert metrics.headers["content-type"].count("charset=") == 1


async def test_a_probe_may_exclude_facts() -> None:
    """A probe without parameters reports all facts."""
    health = runtime.Health("admission")
    health.set("competitors", "another system")
    health.set("log", "away")
    app = http.health_app(health)
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]  # same ASGI, other types
    async with httpx.AsyncClient(transport=transport, base_url="http://s") as client:
        some = await client.get("/readyz?exclude=competitors")
        none = await client.get("/readyz?exclude=competitors&exclude=log")
        every = await client.get("/readyz")
    assert (some.status_code, some.json()) == (503, {"admission": {"log": "away"}})
    assert none.status_code == 200
    assert every.status_code == 503
    assert every.json()["admission"].keys() == {"competitors", "log"}


def test_a_port_that_another_process_listens_on_is_an_error() -> None:
    """Both were bound before one listened. uvloop ignores this error: the service would report that
    it serves and receive no request.
    """

    async def serve() -> None:
        first = http.listen("127.0.0.1", 0)
        with first, http.listen("127.0.0.1", first.getsockname()[1]) as second:
            first.listen()
            async with http.serving(http.health_app(runtime.Health("monitor")), second):
                pass

    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(OSError, match="listen on port") as caught,
    ):
        runner.run(serve())
    assert caught.value.errno == errno.EADDRINUSE


class StoppableClock(asyncio.SelectorEventLoop):
    """An event loop without timers from ``stop_clock`` on."""

    _stopped_at: float | None = None

    def stop_clock(self) -> None:
        self._stopped_at = self.time()

    def time(self) -> float:
        return super().time() if self._stopped_at is None else self._stopped_at


@pytest.mark.timeout(120)
def test_a_server_without_connections_ends_immediately() -> None:
    """It waits for no timer: neither for its next look whether it should end, nor for a pause."""

    async def serve() -> None:
        health = http.health_app(runtime.Health("monitor"))
        async with http.serving(health, http.listen("127.0.0.1", 0)):
            loop.stop_clock()

    loop = StoppableClock()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(serve())


def test_responses_do_not_wait_for_the_peers_acknowledgement() -> None:
    """asyncio sets TCP_NODELAY only on connections of sockets with an explicit protocol."""
    with http.listen("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP


def test_sigterm_lets_the_process_finish_its_work() -> None:
    code = (
        "import asyncio, sys\n"
        "from stromboli.shared.runtime import runtime\n"
        "async def main():\n"
        "    print('up', flush=True)\n"
        "    try:\n"
        "        await asyncio.Event().wait()\n"
        "    finally:\n"
        "        await asyncio.shield(asyncio.sleep(0.01)); print('finished', flush=True)\n"
        "runtime.run(main)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.read() == "finished\n"
        assert process.wait(60) == 0


def test_a_machine_that_stops_uses_up_one_step_of_the_time_to_end() -> None:
    """Else a process that had almost finished its work would exit with an error."""

    async def stopped() -> None:
        loop, called = asyncio.get_running_loop(), list[float]()
        assert isinstance(loop, virtual_time.VirtualTimeLoop)
        runtime.call_after_steps(9.0, 9, lambda: called.append(loop.time()))
        loop.advance(3600.0)
        await asyncio.sleep(7.9)
        assert not called
        await asyncio.sleep(0.2)
        assert len(called) == 1

    virtual_time.run(stopped())


def test_a_process_that_ends_visits_no_objects_first() -> None:
    """The interpreter's last collections took most of the time that ``strom up`` needs to stop."""
    code = (
        "import gc\n"
        "from stromboli.shared.runtime import runtime\n"
        "async def main(): pass\n"
        "runtime.run(main)\n"
        "print(len(gc.get_objects()) < 1000 < gc.get_freeze_count())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"


@pytest.mark.parametrize("interval_s", [0.005, 0.0051, 0.0104], ids=str)
def test_a_timer_never_fires_before_its_time(interval_s: float) -> None:
    """On the loop that serves."""

    async def early() -> int:
        loop = asyncio.get_running_loop()
        found = 0
        for _ in range(50):
            until = runtime.timer_at(loop.time() + interval_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await asyncio.Event().wait()
            found += loop.time() < until
        return found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(early()) == 0


def test_a_timer_without_a_time_never_fires() -> None:
    assert runtime.timer_at(float("inf")) == float("inf")
