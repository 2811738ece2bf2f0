"""The console of ``strom up``: the printed link logs in, and a port in use is named."""

from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from stromboli.cli.errors import CommandError
from stromboli.embedded import commands, console_server, system
from stromboli.embedded.console_server import Options
from stromboli.shared.runtime import http


async def test_the_link_logs_in(tmp_path: Path) -> None:
    async with system.run_system(system.Options(state=tmp_path / "embedded")) as running:
        await running.ready()
        async with console_server.serving(running, console_server.bind(Options(port=0))) as link:
            parts = urlsplit(link)
            assert (parts.hostname, parts.path) == ("127.0.0.1", "/login")
            name, _, token = parts.fragment.partition("=")
            assert (name, token) == ("token", running.token)
            address = f"http://{parts.netloc}"
            async with httpx.AsyncClient(base_url=address, trust_env=False) as browser:
                assert (await browser.post("/login", data={"token": token})).status_code == 303
                assert (await browser.get("/jobs")).status_code == 200


def test_a_port_in_use_moves_unless_the_user_chose_it(tmp_path: Path) -> None:
    with http.listen(system.LOOPBACK, 0) as busy:
        busy.listen()
        port = busy.getsockname()[1]
        with console_server.bind(Options(port=port)) as other:
            assert other.getsockname()[1] != port
        with pytest.raises(CommandError, match="console port"):
            commands.up(nodes=0, state=tmp_path / "state", port=0, console_port=port)
