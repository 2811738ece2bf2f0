"""The console of ``strom up``: its link logs in, and what keeps it from starting is named."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from stromboli.embedded import console_server, system
from stromboli.embedded.console_server import Options
from stromboli.shared.runtime import http
from stromboli.testkit import records


async def test_the_link_logs_in(tmp_path: Path) -> None:
    async with system.run_system(system.Options(state=tmp_path / "embedded")) as running:
        await running.ready()
        async with console_server.serving(running, Options(port=0)) as link:
            parts = urlsplit(link)
            assert (parts.hostname, parts.path) == ("127.0.0.1", "/login")
            name, _, token = parts.fragment.partition("=")
            assert (name, token) == ("token", running.token)
            address = f"http://{parts.netloc}"
            async with httpx.AsyncClient(
                base_url=address, trust_env=False, timeout=records.DEADLINE_S
            ) as browser:
                assert (await browser.post("/login", data={"token": token})).status_code == 303
                assert (await browser.get("/jobs")).status_code == 200


def reachable(shown: str) -> bool:
    return shown.startswith("http://127.0.0.1:")


async def test_a_port_in_use_moves_unless_the_user_chose_it(tmp_path: Path) -> None:
    """A console that cannot start is reported; the system continues."""
    options = system.Options(state=tmp_path / "embedded")
    with http.listen(system.LOOPBACK, 0) as busy:
        busy.listen()
        port = busy.getsockname()[1]
        async with system.run_system(options) as running:
            await running.ready()
            async with console_server.serving(running, Options(port=port)) as shown:
                assert reachable(shown)
                assert f":{port}/" not in shown
            chosen = Options(port=port, port_may_move=False)
            async with console_server.serving(running, chosen) as shown:
                assert shown.startswith(f"not served: port {port} is in use; set another")


async def test_a_missing_package_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, console_server.SERVICE, None)
    async with system.run_system(system.Options(state=tmp_path / "embedded")) as running:
        async with console_server.serving(running, Options(port=0)) as shown:
            assert shown.startswith("not served: ")
            assert "install stromboli-console" in shown
        async with httpx.AsyncClient(
            base_url=running.url, trust_env=False, timeout=records.DEADLINE_S
        ) as client:
            assert (await client.get("/readyz")).status_code in (200, 503)
