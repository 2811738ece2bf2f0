"""The web console beside the embedded system: on a port of its own, with a link that logs in.

The link has the token of this start behind ``#``, a part that browsers send to no server. With
accounts it has none: users log in with tokens of theirs.
"""

import asyncio
import contextlib
import importlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from stromboli.console.settings import ConsoleSettings
from stromboli.embedded import system
from stromboli.shared.runtime import http, runtime

USUAL_PORT = 8487


class Options(msgspec.Struct, frozen=True):
    """The port; one in use is replaced by the next free one if ``port_may_move``."""

    port: int = USUAL_PORT
    port_may_move: bool = True


def bind(options: Options) -> socket.socket:
    """The socket of the console. Raises OSError when the port is in use."""
    return http.listen_near(system.LOOPBACK, options.port, may_move=options.port_may_move)


@contextlib.asynccontextmanager
async def serving(running: system.System, bound: socket.socket) -> AsyncIterator[str]:
    """The console on a bound socket while inside; yields the address to open.

    Its templates are imported only now, in a thread: no service waits for them.
    """
    service: Any = await asyncio.to_thread(importlib.import_module, "stromboli.console.service")
    settings = ConsoleSettings(server=running.url)
    port = bound.getsockname()[1]
    async with (
        service.running(settings, runtime.utc_now, port) as app,
        http.serving(app, bound),
    ):
        login = f"/login#token={running.token}" if running.token else ""
        yield f"http://{system.LOOPBACK}:{port}{login}"
