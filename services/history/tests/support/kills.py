"""A process that kills itself with SIGKILL before one of its steps.

Steps are what leaves traces outside the process: each statement and commit on the database, and
each opening, renaming and removing of a file in a folder. The process is forked from a server that
has imported everything, so a kill takes some 0.1 s and not the seconds of a start.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

FILE_EVENTS = ("open", "os.rename", "os.remove")
ENDS_WITHIN_S = 60.0
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([__name__, "stromboli.history.store.backup", "alembic.command"])


async def killed_before(
    step: int, action: Callable[..., Awaitable[Any]], url: str, file: Path
) -> bool:
    """Run ``action(opened database, file)`` in a process that is killed before a step, counted from
    0; returns whether it was: an action with fewer steps ends. Raises RuntimeError if it fails."""
    process = _SERVER.Process(target=_run, args=(step, action, url, file))
    process.start()
    await asyncio.to_thread(process.join, ENDS_WITHIN_S)
    if process.exitcode not in (0, -signal.SIGKILL):
        process.kill()
        raise RuntimeError(f"{action.__name__} before step {step}: exit code {process.exitcode}")
    return process.exitcode != 0


def _run(step: int, action: Callable[..., Awaitable[Any]], url: str, file: Path) -> None:
    from stromboli.history.store.database import Database

    left = step
    folder = str(file.parent)

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FILE_EVENTS and str(arguments[0]).startswith(folder):
            count()

    async def run() -> None:
        opened = Database(url)
        await action(opened, file)
        await opened.close()

    sa.event.listen(sa.engine.Engine, "before_cursor_execute", count)
    sa.event.listen(sa.engine.Engine, "commit", count)
    sys.addaudithook(audit)
    asyncio.run(run())
