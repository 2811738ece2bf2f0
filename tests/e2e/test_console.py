"""The console by HTTP: rights are those of REST, forms are safe, all text is escaped.

``test_console_browser.py`` opens the same pages in a real Chromium.
"""

import asyncio
import contextlib
import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from litestar import Litestar, Request, Response, get
from litestar.params import FromPath
from litestar.response import Stream

from stromboli.client import calls, errors
from stromboli.client.responses import Explanation
from stromboli.console.sessions import MOST_OF_USER
from stromboli.console.settings import ConsoleSettings
from stromboli.shared.runtime import http
from tests.e2e.support import console_system
from tests.e2e.support.console_system import ConsoleSystem, job

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
PAGES = (
    "/",
    "/jobs",
    "/queues",
    "/nodes",
    "/history",
    "/usage",
    "/jobs/default/kept",
    "/jobs/default/kept/yaml",
    "/jobs/default/kept/change",
    "/jobs/default/kept/resubmit",
    "/jobs/default/kept/tools",
    "/flows",
    "/evictions",
)
LARGEST_FIRST_PAGE = 300_000
WITHIN_S = 30.0


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConsoleSystem]:
    """A console over a system with one job that runs."""
    async with console_system.running(tmp_path_factory.mktemp("console"), nodes=1) as found:
        await found.client.submit(job("kept", gpus=1))
        await found.client.wait("kept", phases=("Running",), timeout_s=60)
        yield found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def tenants(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConsoleSystem]:
    """A console over a system with accounts, and a job in the namespace of each tenant."""
    folder = tmp_path_factory.mktemp("tenants")
    async with console_system.running(folder, has_accounts=True, nodes=1) as found:
        for namespace in console_system.TENANTS.values():
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await found.client.apply([space])
            await found.client.submit(
                job(f"secret-of-{namespace}", namespace=namespace), namespace=namespace
            )
        yield found


def csrf_in(page: httpx.Response) -> str:
    """The value that the forms of a page carry."""
    found = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert found is not None, page.text
    return found[1]


def uid_in(page: httpx.Response) -> str:
    found = re.search(r'name="uid" value="([^"]+)"', page.text)
    assert found is not None, page.text
    return found[1]


async def shows(browser: httpx.AsyncClient, path: str, text: str) -> None:
    """Read a page until it has a text: its lists follow watches."""
    async with asyncio.timeout(WITHIN_S):
        while text not in (await browser.get(path)).text:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("path", [*PAGES, "/jobs/default/kept/logs"])
async def test_every_page_needs_a_session(made: ConsoleSystem, path: str) -> None:
    async with made.browser() as browser:
        answer = await browser.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login")
        assert b"kept" not in answer.content


async def test_a_stream_needs_a_session(made: ConsoleSystem) -> None:
    async with made.browser() as browser:
        assert (await browser.get("/live/jobs")).status_code == 401


async def test_a_token_that_rest_refuses_opens_no_session(made: ConsoleSystem) -> None:
    async with made.browser() as browser:
        answer = await browser.post("/login", data={"token": "guessed"})
        assert answer.status_code == 403
        assert "does not accept this token" in answer.text
        assert not browser.cookies


async def test_the_cookie_is_for_this_site_alone_and_holds_no_token(made: ConsoleSystem) -> None:
    async with made.browser() as browser:
        answer = await browser.post("/login", data={"token": made.token})
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert made.token.lower() not in cookie


@pytest.mark.parametrize("path", PAGES)
async def test_pages_have_the_policy_and_nothing_inline(made: ConsoleSystem, path: str) -> None:
    """The policy would block it, and a page that needs it would be broken."""
    async with made.login() as browser:
        answer = await browser.get(path)
        assert answer.status_code == 200, answer.text
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=", answer.text)
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', answer.text)


async def test_the_first_page_with_its_files_is_small(made: ConsoleSystem) -> None:
    async with made.login() as browser:
        answer = await browser.get("/")
        files = re.findall(r'(?:src|href)="(/static/[^"]+)"', answer.text)
        assert len(files) == 4
        sizes = [int(answer.headers["content-length"])]
        for file in files:
            found = await browser.get(file)
            assert found.status_code == 200
            assert "immutable" in found.headers["cache-control"]
            sizes.append(int(found.headers["content-length"]))
        assert sum(sizes) < LARGEST_FIRST_PAGE


async def test_an_action_needs_the_form_of_this_session(made: ConsoleSystem) -> None:
    """Another site can make a browser send a form, and cannot read a page."""
    async with made.login() as browser, made.login() as other:
        page = await browser.get("/jobs/default/kept/confirm/delete")
        foreign = await other.get("/jobs/default/kept/confirm/delete")
        uid = uid_in(page)
        for csrf in ("", "guessed", csrf_in(foreign)):
            answer = await browser.post(
                "/jobs/default/kept/delete", data={"csrf": csrf, "uid": uid}
            )
            assert answer.status_code == 403
        answer = await browser.post(
            "/jobs/default/kept/delete",
            data={"csrf": csrf_in(page), "uid": uid},
            headers={"origin": "http://evil.example"},
        )
        assert answer.status_code == 403
    assert (await made.client.job("kept")).metadata.uid == uid


async def test_an_action_needs_a_form_and_not_json(made: ConsoleSystem) -> None:
    async with made.login() as browser:
        answer = await browser.post("/jobs/default/kept/delete", json={"csrf": "x"})
        assert answer.status_code == 415


async def test_a_request_to_another_name_is_refused(made: ConsoleSystem) -> None:
    """DNS rebinding: a name of an attacker that resolves to loopback."""
    async with made.login() as browser:
        answer = await browser.get("/jobs", headers={"host": "evil.example"})
        assert answer.status_code == 403
        assert "kept" not in answer.text


async def test_a_confirmed_action_is_executed_once(made: ConsoleSystem) -> None:
    await made.client.submit(job("ends", cpu="100m"))
    await made.client.wait("ends", phases=("Running",), timeout_s=60)
    async with made.login() as browser:
        page = await browser.get("/jobs/default/ends/confirm/suspend")
        assert "Its pods end now" in page.text
        form = {"csrf": csrf_in(page), "uid": uid_in(page)}
        answer = await browser.post("/jobs/default/ends/suspend", data=form)
        assert answer.status_code == 303
        await made.client.wait("ends", phases=("Aborted",), timeout_s=60)
        assert "Resume…" in (await browser.get("/jobs/default/ends")).text
        answer = await browser.post("/jobs/default/ends/delete", data=form)
        assert answer.headers["location"] == "/jobs?namespace=default"
        with pytest.raises(errors.NotFoundError):
            await made.client.job("ends")


async def test_a_form_about_an_earlier_job_of_the_name_changes_nothing(
    made: ConsoleSystem,
) -> None:
    async with made.login() as browser:
        page = await browser.get("/jobs/default/kept/confirm/delete")
        form = {"csrf": csrf_in(page), "uid": "00000000-0000-4000-8000-000000000000"}
        answer = await browser.post("/jobs/default/kept/delete", data=form)
        assert answer.status_code == 409
    assert (await made.client.job("kept")).metadata.name == "kept"


async def test_text_of_users_is_escaped_everywhere(made: ConsoleSystem) -> None:
    hostile = job(
        "hostile",
        cpu="500",
        image="x/" + "a" * 10,
        annotations={"note": HOSTILE, "stromboli.sh/user": HOSTILE},
    )
    await made.client.submit(hostile)
    async with made.login() as browser:
        for path in (
            "/jobs",
            "/jobs/default/hostile",
            "/jobs/default/hostile/yaml",
            "/jobs/default/hostile/confirm/delete",
        ):
            text = (await browser.get(path)).text
            assert "<script>alert" not in text
            assert "<img src=x" not in text
        for query in ({"q": HOSTILE}, {"namespace": HOSTILE}, {"queue": HOSTILE}):
            text = (await browser.get("/jobs", params=query)).text
            assert "<script>alert" not in text
            assert "<img src=x" not in text
        text = (await browser.get(f"/jobs/default/{HOSTILE.replace('/', '')}")).text
        assert "<script>alert" not in text
    await made.client.delete("hostile")


async def test_filters_are_in_the_url(made: ConsoleSystem) -> None:
    async with made.login() as browser:
        assert "/jobs/default/kept" in (await browser.get("/jobs?q=kep&phase=running")).text
        assert "No job matches" in (await browser.get("/jobs?q=kep&phase=failed")).text
        assert "No job matches" in (await browser.get("/jobs?queue=other")).text


async def test_a_pending_job_shows_the_numbers_of_the_explanation(made: ConsoleSystem) -> None:
    await made.client.submit(job("too-large", 2, gpus=8))
    async for _ in made.client.watch(_explanation("too-large"), timeout_s=30):
        if (await made.client.explanation("too-large")).explained is not None:
            break
    async with made.login() as browser:
        text = (await browser.get("/jobs/default/too-large")).text
        assert "Why is it pending?" in text
        assert "It can never fit into the cluster" in text
        assert "short by" in text
        await shows(
            browser,
            "/jobs?phase=pending",
            "can never fit: all nodes together have 4 nvidia.com/gpu",
        )
        assert "can never fit into the cluster or its queue" in (await browser.get("/")).text
    await made.client.delete("too-large")


async def test_a_node_shows_who_holds_its_gpus(made: ConsoleSystem) -> None:
    async with made.login() as browser:
        text = (await browser.get("/nodes")).text
        assert "Who holds GPUs" in text
        assert re.search(r'href="/jobs/default/kept">kept</a>', text)
        assert "No node matches" in (await browser.get("/nodes?q=none")).text


async def test_the_history_has_deleted_jobs_page_by_page(made: ConsoleSystem) -> None:
    """Each page leads to the next by the token of REST."""
    await made.client.submit(job("swept", 130, cpu="10m", minimum=1, run_s=0.1))
    await made.client.wait("swept", timeout_s=60)
    uid = (await made.client.job("swept")).metadata.uid
    await made.client.delete("swept")
    async with made.login() as browser:
        await shows(browser, "/history?job=swept", "Older")
        first = (await browser.get("/history?job=swept&state=Succeeded")).text
        older = re.search(r'rel="next" href="([^"]+)"', first)
        assert older is not None
        second = (await browser.get(html.unescape(older[1]))).text
        rows = [len(re.findall(r"<tr data-row", page)) for page in (first, second)]
        assert rows == [100, 30]
        assert "Newest" in second
        assert "swept" in (await browser.get(f"/history?uid={uid}")).text
        assert "No attempt matches" in (await browser.get("/history?job=swept&user=other")).text


async def test_usage_is_shown_by_group_and_leads_to_its_attempts(made: ConsoleSystem) -> None:
    async with made.login() as browser:
        await shows(browser, "/usage?by=job", "kept")
        text = (await browser.get("/usage?by=job&then=queue")).text
        assert re.search(r'href="/history\?[^"]*job=kept[^"]*">1</a>', text), text
        assert "Total" in text


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
            httpx.AsyncClient(base_url=url, trust_env=False) as browser,
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
    """REST names the job that got the room to the owner of the pod."""
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


async def test_a_log_that_cannot_be_read_ends_with_the_reason(made: ConsoleSystem) -> None:
    async with made.login() as browser:
        answer = await browser.get("/live/log/default/kept-worker-0")
        assert "event: ended" in answer.text
        assert "is simulated, so there is no output" in answer.text


async def test_a_form_changes_a_job_and_names_what_it_cannot_be(made: ConsoleSystem) -> None:
    await made.client.submit(job("adapts", cpu="100m"))
    async with made.login() as browser:
        page = await browser.get("/jobs/default/adapts/change")
        form = {"csrf": csrf_in(page), "uid": uid_in(page)}
        wrong = {**form, "time-limit": "soon"}
        answer = await browser.post("/jobs/default/adapts/change", data=wrong)
        assert answer.status_code == 422
        assert "time-limit=soon" in answer.text
        right = {**form, "replicas.worker": "2", "time-limit": "4h"}
        answer = await browser.post("/jobs/default/adapts/change", data=right)
        assert answer.headers["location"] == "/jobs/default/adapts?done=change"
    spec = (await made.client.job("adapts")).spec
    assert (spec.tasks[0].replicas, spec.active_deadline_seconds) == (2, 4 * 3600)
    await made.client.delete("adapts")


async def test_a_job_that_ended_is_submitted_again_and_not_restarted(made: ConsoleSystem) -> None:
    """No command changes a job that has ended: REST would refuse it."""
    await made.client.submit(job("once", cpu="100m", run_s=0.1))
    await made.client.wait("once", timeout_s=60)
    async with made.login() as browser:
        text = (await browser.get("/jobs/default/once")).text
        assert "Restart…" not in text
        assert "Submit again…" in text
        page = await browser.get("/jobs/default/once/resubmit")
        form = {"csrf": csrf_in(page), "uid": uid_in(page), "name": "once-more"}
        answer = await browser.post("/jobs/default/once/resubmit", data=form)
        assert answer.headers["location"] == "/jobs/default/once-more?done=resubmit"
        assert "This job was submitted" in (await browser.get(answer.headers["location"])).text
        taken = await browser.post("/jobs/default/once/resubmit", data={**form, "name": "kept"})
        assert taken.status_code == 422
        assert 'value="kept"' in taken.text
    await made.client.delete("once")
    await made.client.delete("once-more")


async def test_a_debug_tool_is_requested_and_stopped(made: ConsoleSystem) -> None:
    async with made.login() as browser:
        page = await browser.get("/jobs/default/kept/tools")
        form = {"csrf": csrf_in(page), "uid": uid_in(page)}
        await browser.post("/jobs/default/kept/tools", data={**form, "start": "jupyter"})
        text = (await browser.get("/jobs/default/kept")).text
        assert "strom job port-forward kept -n default --tool jupyter" in text
        answer = await browser.post("/jobs/default/kept/tools", data={**form, "start": "excel"})
        assert answer.status_code == 422
        await browser.post("/jobs/default/kept/tools", data={**form, "stop": "jupyter"})
        assert "--tool jupyter" not in (await browser.get("/jobs/default/kept")).text


async def test_a_flow_shows_each_step_in_a_drawing_and_a_table(made: ConsoleSystem) -> None:
    steps: dict[str, tuple[str, ...]] = {"first": (), "second": ("first",)}
    await made.client.apply(console_system.flow("night", steps, run_s=3600))
    await made.client.wait("night-first", phases=("Running",), timeout_s=60)
    async with made.login() as browser:
        await shows(browser, "/flows", 'href="/flows/default/night"')
        await shows(browser, "/flows/default/night", "night-first: Running")
        text = (await browser.get("/flows/default/night")).text
        assert "night-second: Waiting" in text
        assert text.count('class="edge') == 1
        assert 'href="/jobs/default/night-first"' in text
        assert 'href="/jobs/default/night-second"' not in text
        assert (await browser.get("/flows/default/none")).status_code == 404


async def test_a_cron_shows_its_next_runs_in_its_zone(made: ConsoleSystem) -> None:
    await made.client.apply([console_system.cron("report", "15 2 * * 1", "Asia/Tokyo")])
    async with made.login() as browser:
        await shows(browser, "/flows", 'href="/crons/default/report"')
        text = (await browser.get("/crons/default/report")).text
        assert len(re.findall(r"Mon \d{4}-\d\d-\d\d 02:15 JST", text)) == 5


async def test_a_stream_reports_a_change(made: ConsoleSystem) -> None:
    async with made.login() as browser, browser.stream("GET", "/live/jobs") as stream:
        lines = stream.aiter_lines()
        assert await anext(lines) == ": open"
        await made.client.submit(job("appears", cpu="100m"))
        async for line in lines:
            if line == "event: changed":
                break
    await made.client.delete("appears")


async def test_a_missing_job_and_a_missing_page_are_named(made: ConsoleSystem) -> None:
    async with made.login() as browser:
        answer = await browser.get("/jobs/default/nothing")
        assert (answer.status_code, "job default/nothing" in answer.text) == (404, True)
        assert (await browser.get("/nowhere")).status_code == 404


async def test_a_link_of_another_site_leads_to_the_page_and_not_to_the_login(
    made: ConsoleSystem,
) -> None:
    """Browsers leave a strict cookie out of such a request, and send it with the next one."""
    async with made.browser() as browser:
        headers = {"sec-fetch-mode": "navigate", "sec-fetch-site": "cross-site"}
        answer = await browser.get("/jobs/default/kept", headers=headers)
        assert answer.status_code == 200
        assert 'http-equiv="refresh"' in answer.text


async def test_after_the_log_out_the_cookie_opens_nothing(made: ConsoleSystem) -> None:
    async with made.login() as browser:
        cookies = dict(browser.cookies)
        page = await browser.get("/jobs")
        await browser.post("/logout", data={"csrf": csrf_in(page)})
        async with made.browser() as again:
            again.cookies.update(cookies)
            assert (await again.get("/jobs")).status_code == 303


async def test_a_new_log_in_ends_the_session_of_this_browser(made: ConsoleSystem) -> None:
    """Nobody could end it any more: its cookie is replaced."""
    async with made.login() as browser, made.browser() as earlier:
        earlier.cookies.update(dict(browser.cookies))
        assert (await earlier.get("/jobs")).status_code == 200
        await browser.post("/login", data={"token": made.token})
        assert (await earlier.get("/jobs")).status_code == 303


async def test_one_user_logs_no_other_one_out(tenants: ConsoleSystem) -> None:
    """Sessions are bounded: a new one may close the one unused for longest, but of its user."""
    async with tenants.login("otto-token", "robots") as otto, tenants.login("vera-token") as first:
        for _ in range(MOST_OF_USER):
            async with tenants.login("vera-token"):
                pass
        assert (await otto.get("/")).status_code == 200
        assert (await first.get("/")).status_code == 303


async def test_a_page_repeats_only_actions_that_exist(made: ConsoleSystem) -> None:
    """A link could make the page say anything."""
    async with made.login() as browser:
        assert "Requested: restart" in (await browser.get("/jobs/default/kept?done=restart")).text
        assert "Requested" not in (await browser.get("/jobs/default/kept?done=call+me")).text


async def test_a_tenant_sees_the_jobs_of_their_namespace_alone(tenants: ConsoleSystem) -> None:
    async with tenants.login("vera-token") as vera:
        answer = await vera.get("/jobs")
        assert answer.status_code == 403
        assert "Choose one" in answer.text
        assert "secret-of" not in answer.text
        assert "secret-of-vision" in (await vera.get("/jobs?namespace=vision")).text
        await shows(vera, "/history?namespace=vision", "secret-of-vision")
        await shows(vera, "/usage?namespace=vision&by=job", "secret-of-vision")
        for path in (
            "/jobs?namespace=robots",
            "/jobs/robots/secret-of-robots",
            "/jobs/robots/secret-of-robots/yaml",
            "/jobs/robots/secret-of-robots/logs",
            "/jobs/robots/secret-of-robots/confirm/delete",
            "/nodes",
            "/queues",
            "/history",
            "/usage",
            "/history?namespace=robots",
            "/usage?namespace=robots",
            "/flows",
            "/flows?namespace=robots",
            "/flows/robots/night",
            "/crons/robots/report",
            "/evictions",
            "/evictions?namespace=robots",
            "/jobs/robots/secret-of-robots/change",
            "/jobs/robots/secret-of-robots/resubmit",
        ):
            answer = await vera.get(path)
            assert answer.status_code == 403, path
            assert "registry.example" not in answer.text
            assert "worker" not in answer.text


async def test_lists_of_one_user_are_not_shown_to_another_one(tenants: ConsoleSystem) -> None:
    """The console keeps lists in memory; each belongs to one session."""
    async with tenants.login("root-token") as root:
        assert "secret-of-robots" in (await root.get("/jobs")).text
        async with tenants.login("vera-token", "vision") as vera:
            for path in ("/jobs?namespace=robots", "/jobs?namespace=*", "/jobs?namespace=", "/"):
                assert "secret-of-robots" not in (await vera.get(path)).text
            assert "secret-of-vision" in (await vera.get("/jobs")).text


async def test_a_tenant_can_neither_see_nor_do_what_rest_refuses(tenants: ConsoleSystem) -> None:
    async with tenants.login("vera-token", "vision") as vera:
        page = await vera.get("/jobs/vision/secret-of-vision/confirm/suspend")
        form = {"csrf": csrf_in(page), "uid": uid_in(page)}
        answer = await vera.post("/jobs/robots/secret-of-robots/delete", data=form)
        assert answer.status_code == 403
    assert (await tenants.client.job("secret-of-robots", "robots")).metadata.name


async def test_a_form_changes_nothing_without_the_right_to_it(tenants: ConsoleSystem) -> None:
    """The tenant may create and delete jobs, and not change them."""
    path = "/jobs/vision/secret-of-vision"
    async with tenants.login("vera-token", "vision") as vera:
        page = await vera.get(f"{path}/change")
        form = {"csrf": csrf_in(page), "uid": uid_in(page)}
        changed = {**form, "replicas.worker": "5"}
        assert (await vera.post(f"{path}/change", data=changed)).status_code == 403
        started = {**form, "start": "jupyter"}
        assert (await vera.post(f"{path}/tools", data=started)).status_code == 403
    job_now = await tenants.client.job("secret-of-vision", "vision")
    assert job_now.spec.tasks[0].replicas == 1


async def test_a_tenant_sees_the_flows_and_crons_of_their_namespace_alone(
    tenants: ConsoleSystem,
) -> None:
    for namespace in console_system.TENANTS.values():
        made = console_system.cron(f"cron-of-{namespace}", "@daily", "UTC", namespace=namespace)
        await tenants.client.apply([made])
    async with tenants.login("vera-token", "vision") as vera:
        await shows(vera, "/flows", "cron-of-vision")
        for path in ("/flows", "/flows?namespace=robots", "/crons/robots/cron-of-robots"):
            assert "cron-of-robots</a>" not in (await vera.get(path)).text


async def test_an_open_console_opens_nothing_of_a_server_with_accounts(
    tenants: ConsoleSystem,
) -> None:
    """It sends no token then, so REST knows nobody."""
    settings = ConsoleSettings(server=tenants.server, open_to_all=True)
    async with (
        console_system.serving(settings) as url,
        httpx.AsyncClient(base_url=url, trust_env=False) as browser,
    ):
        assert 'name="token"' not in (await browser.get("/login")).text
        answer = await browser.post("/login", data={"token": "root-token"})
        assert answer.status_code == 403
        assert not browser.cookies


async def test_the_overview_of_a_tenant_shows_what_they_may_read(tenants: ConsoleSystem) -> None:
    async with tenants.login("otto-token", "robots") as otto:
        answer = await otto.get("/")
        assert answer.status_code == 200
        assert "namespace robots" in answer.text
        assert "nodes ready" not in answer.text


async def test_a_console_that_is_read_only_has_no_actions(tmp_path: Path) -> None:
    settings = ConsoleSettings(read_only=True)
    async with console_system.running(tmp_path, nodes=1, settings=settings) as found:
        await found.client.submit(job("kept"))
        async with found.login() as browser:
            page = await browser.get("/jobs/default/kept")
            assert "Delete" not in page.text
            form = {"csrf": csrf_in(page), "uid": (await found.client.job("kept")).metadata.uid}
            answer = await browser.post("/jobs/default/kept/delete", data=form)
            assert answer.status_code == 403


def _explanation(name: str) -> calls.Call[Explanation]:
    return calls.watch_explanation("default", name)
