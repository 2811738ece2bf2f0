"""The web console beside the embedded system: on its own port, with a link that logs in.

The link has the token of this start after ``#``: browsers do not send this part to servers. With
accounts it has no token: users log in with their own.

The system works without its console: a console that cannot start is reported and left out.
"""

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator
from errno import EADDRINUSE
from typing import Any

import msgspec

from stromboli.embedded import system
from stromboli.shared.runtime import http, runtime

USUAL_PORT = 8487
SERVICE = "stromboli.console.service"


class Options(msgspec.Struct, frozen=True):
    """``port_may_move``: use the next free port if ``port`` is in use."""

    port: int = USUAL_PORT
    port_may_move: bool = True


@contextlib.asynccontextmanager
async def serving(running: system.System, options: Options) -> AsyncIterator[str]:
    """Serve the console inside the context; yields the address to open, or the reason why the
    console is not served."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            console_status = await stack.enter_async_context(_pages(running, options))
        except Exception as error:  # an error of the console does not stop the system
            console_status = f"not served: {_reason(error, options)}"
        yield console_status


@contextlib.asynccontextmanager
async def _pages(running: system.System, options: Options) -> AsyncIterator[str]:
    """Serve the pages inside the context; yields the address. The pages are imported only now, in
    a thread, so that no service waits for their templates."""
    service: Any = await asyncio.to_thread(importlib.import_module, SERVICE)
    settings = service.ConsoleSettings(server=running.url)
    bound = http.listen_near(system.LOOPBACK, options.port, may_move=options.port_may_move)
    with contextlib.closing(bound):
        port = bound.getsockname()[1]
        async with (
            service.running(settings, runtime.utc_now, port) as app,
            http.serving(app, bound),
        ):
            login = f"/login#token={running.token}" if running.token else ""
            yield f"http://{system.LOOPBACK}:{port}{login}"


def _reason(error: Exception, options: Options) -> str:
    if isinstance(error, OSError) and error.errno == EADDRINUSE:
        return f"port {options.port} is in use; set another --console-port, or omit it"
    if isinstance(error, ImportError):
        return f"{error}; install stromboli-console, or set --no-console"
    return f"{type(error).__name__}: {error}"
