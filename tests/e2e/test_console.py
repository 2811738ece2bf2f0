"""The console by HTTP: rights are those of REST, forms are safe, all text is escaped.

``test_console_tenants.py`` has users with different rights, ``test_console_browser.py`` a real
Chromium.
"""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from stromboli.client import errors
from stromboli.client.operations import accounting_calls, calls
from stromboli.console.settings import ConsoleSettings
from stromboli.shared.api.views import accounting
from stromboli.testkit import records
from tests.e2e.support import console_system
from tests.e2e.support.console_pages import csrf_in, shows, uid_in
from tests.e2e.support.console_system import ConsoleSystem, job, queue

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
PAGES = (
    "/",
    "/jobs",
    "/queues",
    "/queues/default",
    "/nodes",
    "/nodes/node-00",
    "/topology",
    "/system",
    "/history",
    "/usage",
    "/usage?by=gpu-type",
    "/jobs/default/kept",
    "/jobs/default/kept/yaml",
    "/jobs/default/kept/change",
    "/jobs/default/kept/resubmit",
    "/jobs/default/kept/tools",
    "/flows",
    "/decisions",
    "/decisions?reason=preempt&node=node-00",
    "/changes",
    "/changes?kind=Node",
)
LARGEST_FIRST_PAGE = 300_000


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConsoleSystem]:
    """A console over a system with one job that runs."""
    async with console_system.running(tmp_path_factory.mktemp("console"), nodes=1) as found:
        await found.client.submit(job("kept", gpus=1))
        await found.client.wait("kept", phases=("Running",), timeout_s=records.DEADLINE_S)
        yield found


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
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
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
            response = await browser.get(file)
            assert response.status_code == 200
            assert "immutable" in response.headers["cache-control"]
            assert response.headers["content-type"].count("charset") <= 1
            sizes.append(int(response.headers["content-length"]))
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
    await made.client.wait("ends", phases=("Running",), timeout_s=records.DEADLINE_S)
    async with made.login() as browser:
        page = await browser.get("/jobs/default/ends/confirm/suspend")
        assert "Its pods end now" in page.text
        form = {"csrf": csrf_in(page), "uid": uid_in(page)}
        answer = await browser.post("/jobs/default/ends/suspend", data=form)
        assert answer.status_code == 303
        await made.client.wait("ends", phases=("Aborted",), timeout_s=records.DEADLINE_S)
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
    watched = calls.watch_explanation("default", "too-large")
    async for _ in made.client.watch(watched, timeout_s=records.DEADLINE_S):
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
    await made.client.wait("swept", timeout_s=records.DEADLINE_S)
    uid = (await made.client.job("swept")).metadata.uid
    await made.client.delete("swept")
    ended = accounting_calls.attempts(
        accounting.AttemptQuery(namespace="default", job="swept", states=("Succeeded",))
    )

    async def attempts() -> int:
        """0 while the history service starts, which REST reports after a time."""
        try:
            return len((await made.client.send(ended)).attempts)
        except errors.UnavailableError:
            return 0

    async with asyncio.timeout(records.DEADLINE_S):
        while await attempts() < 130:  # noqa: ASYNC110 - it follows the log
            await asyncio.sleep(0.05)
    async with made.login() as browser:
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


async def test_a_waiting_job_moves_to_a_queue_that_admission_accepts(made: ConsoleSystem) -> None:
    """REST judges the form as it judges ``strom job set``: the page shows its reason."""
    await made.client.submit(job("moves", cpu="1000"))
    await made.client.apply([queue("elsewhere")])
    own = "/jobs/default/moves/change"
    async with made.login() as browser:
        page = await browser.get(own)
        assert 'name="queue"' in page.text
        form = {"csrf": csrf_in(page), "uid": uid_in(page)}
        refused = await browser.post(own, data=form | {"queue": "elsewere"})
        assert refused.status_code == 422
        assert "elsewhere" in refused.text  # the nearest name
        assert 'value="elsewere"' in refused.text
        answer = await browser.post(own, data=form | {"queue": "elsewhere"})
        assert answer.headers["location"] == "/jobs/default/moves?done=change"
    assert (await made.client.job("moves")).spec.queue == "elsewhere"
    await made.client.delete("moves")


async def test_a_job_that_ended_is_submitted_again_and_not_restarted(made: ConsoleSystem) -> None:
    """No command changes a job that has ended: REST would refuse it."""
    await made.client.submit(job("once", cpu="100m", run_s=0.1))
    await made.client.wait("once", timeout_s=records.DEADLINE_S)
    async with made.login() as browser:
        text = (await browser.get("/jobs/default/once")).text
        assert "Restart…" not in text
        assert "Submit again…" in text
        page = await browser.get("/jobs/default/once/resubmit")
        form = {"csrf": csrf_in(page), "uid": uid_in(page), "name": "once-more"}
        answer = await browser.post("/jobs/default/once/resubmit", data=form)
        assert answer.headers["location"] == "/jobs/default/once-more?done=resubmit"
        assert "This job was submitted" in (await browser.get(answer.headers["location"])).text
        response = await browser.post("/jobs/default/once/resubmit", data={**form, "name": "kept"})
        assert response.status_code == 422
        assert 'value="kept"' in response.text
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


async def test_racks_show_who_holds_the_gpus_of_each_node(made: ConsoleSystem) -> None:
    racks = console_system.hyper_nodes({"rack-a": ("node-00",)}, "spine-0")
    async with made.login() as browser:
        assert "There are no HyperNodes" in (await browser.get("/topology")).text
        await made.client.apply(racks)
        await shows(browser, "/topology", "tier 1, rack")
        text = (await browser.get("/topology?within=rack-a&q=kept")).text
        assert "3 of 4 GPUs free" in text
        assert 'href="/jobs/default/kept"' in text
        assert "1 node marked" in text
        node = (await browser.get("/nodes/node-00")).text
        assert '<a href="/topology?within=rack-a">rack-a</a>' in node
        assert "No node agent reports" in node
        assert (await browser.get("/nodes/node-99")).status_code == 404


async def test_the_system_page_shows_who_wrote_last(made: ConsoleSystem) -> None:
    async with made.login() as browser:
        text = (await browser.get("/system")).text
        assert "scheduling.decisions" in text
        assert "Every record could be processed" in text
        async with browser.stream("GET", "/live/clock") as stream:
            assert await anext(stream.aiter_lines()) == ": open"


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


async def test_a_page_repeats_only_actions_that_exist(made: ConsoleSystem) -> None:
    """A link could make the page say anything."""
    async with made.login() as browser:
        assert "Requested: restart" in (await browser.get("/jobs/default/kept?done=restart")).text
        assert "Requested" not in (await browser.get("/jobs/default/kept?done=call+me")).text


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
