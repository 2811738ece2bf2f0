"""The console of users with different rights: a page shows and does what REST allows its viewer."""

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from stromboli.console.sessions import MOST_OF_USER
from stromboli.console.settings import ConsoleSettings
from stromboli.testkit import records
from tests.e2e.support import console_system
from tests.e2e.support.console_pages import csrf_in, shows, uid_in
from tests.e2e.support.console_system import ConsoleSystem, job

pytestmark = pytest.mark.asyncio(loop_scope="module")


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


async def test_one_user_logs_no_other_one_out(tenants: ConsoleSystem) -> None:
    """Sessions are bounded: a new one may close the one unused for longest, but of its user."""
    async with tenants.login("otto-token", "robots") as otto, tenants.login("vera-token") as first:
        for _ in range(MOST_OF_USER):
            async with tenants.login("vera-token"):
                pass
        assert (await otto.get("/")).status_code == 200
        assert (await first.get("/")).status_code == 303


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
            "/nodes/node-00",
            "/topology",
            "/system",
            "/queues",
            "/queues/default",
            "/history",
            "/usage",
            "/history?namespace=robots",
            "/usage?namespace=robots",
            "/flows",
            "/flows?namespace=robots",
            "/flows/robots/night",
            "/crons/robots/report",
            "/decisions",
            "/decisions?namespace=robots",
            "/changes",
            "/changes?kind=Queue",
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
    """It sends no token then, so REST knows no user."""
    settings = ConsoleSettings(server=tenants.server, open_to_all=True)
    async with (
        console_system.serving(settings) as url,
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=records.DEADLINE_S) as browser,
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
