"""The console with 100,000 jobs: the first page of a new session, and pages of the whole list.

    python -m bench.console [--jobs N] [--browser]

A process answers REST's watches with prepared events, so that what is measured is the console: the
client, rows, filters, templates, compression. A browser logs in and opens the list of jobs while it
loads; then each page is read seven times. ``delay``: the longest time for which the console's event
loop answered nothing else. ``cpu ms``: of this process, which is the console and the browser's
client, for one page; it does not depend on other processes of the machine.

With ``--browser``, Chromium shows the newest jobs while one of them changes once in a second. Its
queue is then the time of the change, so the page measures when it shows it, on the same clock, and
which tasks block its main thread for more than 50 ms.
"""

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import uvicorn

from stromboli.console import service
from stromboli.console.settings import ConsoleSettings
from stromboli.shared.runtime import http, runtime
from stromboli.testkit.builders import NOON, make_job, make_task
from tests.e2e.support import browser

PHASES = ("Pending", "Running", "Completed", "Failed")
EVENTS_PER_CHUNK = 100
RUNS = 7
CHANGES = 30
"""Changes that the browser shows in a measurement."""
BROWSER_WITHIN_S = 600.0
OBSERVE = """
window.delays = []; window.tasks = []; window.last = "";
new PerformanceObserver(list => tasks.push(...list.getEntries().map(it => Math.round(it.duration))))
  .observe({type: "longtask"});
new MutationObserver(() => {
  const [text, sent] = document.querySelector("tbody")?.textContent.match(/sent-([0-9]+)/) ?? [];
  if (text && text !== last) { if (last) delays.push(Date.now() - Number(sent)); last = text; }
}).observe(document.body, {childList: true, subtree: true, characterData: true});
0
"""
PAGES = {
    "newest": "/jobs",
    "pending": "/jobs?phase=pending",
    "search": "/jobs?q=team-7+train",
    "search without a match": "/jobs?q=nothing-has-this-name",
    "most GPUs": "/jobs?sort=-gpus",
    "by queue": "/jobs?sort=queue",
    "page 10": "/jobs?page=10",
    "last page": "/jobs?page=999999",
    "overview": "/",
}


def chunks(jobs: int) -> Iterator[bytes]:
    """Watch events of jobs in some namespaces, queues and phases, with realistic templates."""
    environment = [{"name": f"SETTING_{number}", "value": "x" * 40} for number in range(12)]
    job = make_job("job", tasks=[make_task("worker", 4)])
    document = msgspec.json.decode(msgspec.json.encode(job))
    container = document["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container |= {"env": environment, "image": "registry.example.com/team/train:1"}
    container["resources"] = {"requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": 1}}
    made: list[bytes] = []
    for number in range(jobs):
        name, space = f"train-{number % 977}-{number}", f"team-{number % 50}"
        at = NOON + timedelta(seconds=number * 7919 % jobs)
        document["metadata"] |= {
            "name": name,
            "namespace": space,
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(number + 1),
            "creationTimestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "labels": {"team": space, "app": "train"},
        }
        document["spec"]["queue"] = f"queue-{number % 20}"
        document["status"] = {"state": {"phase": PHASES[number % len(PHASES)]}}
        data = msgspec.json.encode(document)
        made.append(b"id: %d\nevent: added\ndata: %s\n\n" % (number + 1, data))
        if len(made) == EVENTS_PER_CHUNK or number == jobs - 1:
            yield b"".join(made)
            made = []
    yield b"event: synced\ndata: {}\n\n"


def changed(document: dict[str, Any]) -> bytes:
    """The event of a job that changes now: its queue is ``sent-`` and the milliseconds since
    1970."""
    metadata = document["metadata"]
    metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
    document["spec"]["queue"] = f"sent-{time.time_ns() // 1_000_000}"
    data = msgspec.json.encode(document)
    return b"id: %s\nevent: modified\ndata: %s\n\n" % (metadata["resourceVersion"].encode(), data)


def newest(of_jobs: list[bytes]) -> dict[str, Any]:
    """The job with the latest creation time."""
    documents = [
        msgspec.json.decode(line.removeprefix(b"data: "))
        for chunk in of_jobs
        for line in chunk.splitlines()
        if line.startswith(b'data: {"')
    ]
    found: dict[str, Any] = max(documents, key=lambda it: it["metadata"]["creationTimestamp"])
    return found


def serve_rest(jobs: int, port: Any, *, is_changing: bool) -> None:
    """REST's answers, in a process of its own."""
    of_jobs, empty = list(chunks(jobs)), list(chunks(0))
    changing = newest(of_jobs) if is_changing else {}

    async def app(scope: Any, _: Any, send: Any) -> None:
        path = scope["path"]
        watched = path.startswith("/v1/watch/")
        status = 200 if watched or path == "/v1/me" else 403
        kind = b"application/json" if status == 200 else b"application/problem+json"
        kind = b"text/event-stream" if watched else kind
        head = {"type": "http.response.start", "status": status}
        await send(head | {"headers": [(b"content-type", kind)]})
        for chunk in (of_jobs if path.endswith("/jobs") else empty) if watched else ():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        while watched:
            await asyncio.sleep(1)
            if changing and path.endswith("/jobs"):
                event = {"type": "http.response.body", "body": changed(changing), "more_body": True}
                await send(event)
        body = b'{"name": ""}' if path == "/v1/me" else b'{"detail": "not measured"}'
        await send({"type": "http.response.body", "body": body})

    listening = http.listen("127.0.0.1", 0)
    port.send(listening.getsockname()[1])
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="error"))
    asyncio.run(server.serve(sockets=[listening]))


class Delay:
    """The longest pause of the event loop, in milliseconds."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def measure(self) -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest_ms = max(self.longest_ms, 1000 * (time.perf_counter() - begun) - 1)


async def measure(server: str, jobs: int) -> dict[str, Any]:
    """The measured times in milliseconds, and bytes of compressed pages."""
    settings = ConsoleSettings(server=server)
    bound = http.listen("127.0.0.1", 0)
    async with (
        service.running(settings, runtime.utc_now, bound.getsockname()[1]) as app,
        http.serving(app, bound) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as browser,
    ):
        answer = await browser.post("/login", data={"token": "any", "namespace": ""})
        assert answer.status_code == 303, answer.text
        delay = Delay()
        measuring = asyncio.create_task(delay.measure())
        begun, cpu = time.perf_counter(), time.process_time()
        page = await browser.get("/jobs")
        found: dict[str, Any] = {"jobs": jobs, "first page ms": _ms(begun)}
        while "still loading" in page.text:
            await asyncio.sleep(0.1)
            page = await browser.get("/jobs")
        found["whole list cpu ms"] = round(1000 * (time.process_time() - cpu))
        found |= {"whole list ms": _ms(begun), "delay while loading ms": round(delay.longest_ms)}
        for name, path in PAGES.items():
            times, delay.longest_ms = [], 0.0
            cpu = time.process_time()
            for _ in range(RUNS):
                begun = time.perf_counter()
                page = await browser.get(path)
                times.append(_ms(begun))
                assert page.status_code == 200, page.text
            size = int(page.headers["content-length"])
            found[name] = {
                "ms": sorted(times)[RUNS // 2],
                "cpu ms": round(1000 * (time.process_time() - cpu) / RUNS),
                "bytes": size,
                "delay ms": round(delay.longest_ms),
            }
        measuring.cancel()
        return found


async def measure_browser(server: str, jobs: int) -> dict[str, Any]:
    """Milliseconds from changes until the browser shows them, and its blocking tasks."""
    settings = ConsoleSettings(server=server)
    bound = http.listen("127.0.0.1", 0)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            service.running(settings, runtime.utc_now, bound.getsockname()[1]) as app,
            http.serving(app, bound) as port,
            browser.opened("about:blank", Path(folder), BROWSER_WITHIN_S) as page,
        ):
            url = f"http://127.0.0.1:{port}"
            await page.call("Page.enable")
            await page.call("Page.navigate", url=f"{url}/login#token=any")
            await page.until("document.querySelector('h1')?.innerText === 'Overview'", 60)
            await page.go(f"{url}/jobs", 60)
            await page.until("document.querySelector('main')?.innerText.includes('sent-')", 60)
            await page.run(OBSERVE)
            await page.until(f"delays.length >= {CHANGES}", 10.0 * CHANGES)
            delays = sorted(await page.run("delays"))
            return {
                "jobs": jobs,
                "changes": len(delays),
                "shown after ms, median": delays[len(delays) // 2],
                "shown after ms, longest": delays[-1],
                "tasks over 50 ms": sorted(await page.run("tasks")),
            }


def _ms(begun: float) -> int:
    return round(1000 * (time.perf_counter() - begun))


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--browser", action="store_true")
    given = parser.parse_args()
    jobs, is_in_browser = given.jobs, given.browser
    here, there = multiprocessing.Pipe(duplex=False)
    rest = multiprocessing.Process(
        target=serve_rest, args=(jobs, there), kwargs={"is_changing": is_in_browser}, daemon=True
    )
    rest.start()
    try:
        port = here.recv()
        run = measure_browser if is_in_browser else measure
        found = asyncio.run(run(f"http://127.0.0.1:{port}", jobs))
    finally:
        rest.kill()
        rest.join()
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
