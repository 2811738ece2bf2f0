"""The console of ``strom up``: the printed link logs in, and a port in use is no error."""

from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from stromboli.embedded import console_server, system
from stromboli.embedded.console_server import Options


async def test_the_link_logs_in_and_a_port_in_use_moves(tmp_path: Path) -> None:
    async with system.run_system(system.Options(state=tmp_path / "embedded")) as running:
        await running.ready()
        async with console_server.serving(running, Options(port=0)) as link:
            parts = urlsplit(link)
            assert (parts.hostname, parts.path) == ("127.0.0.1", "/login")
            name, _, token = parts.fragment.partition("=")
            assert (name, token) == ("token", running.token)
            async with httpx.AsyncClient(base_url=link, trust_env=False) as browser:
                assert (await browser.post("/login", data={"token": token})).status_code == 303
                assert (await browser.get("/jobs")).status_code == 200
            busy = parts.port or 0
            async with console_server.serving(running, Options(port=busy)) as other:
                assert urlsplit(other).port != busy
            with pytest.raises(OSError, match="in use"):
                async with console_server.serving(running, Options(busy, port_may_move=False)):
                    raise AssertionError("two consoles listen on one port")
