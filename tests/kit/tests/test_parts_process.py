"""Child processes and ports: what starts is ready or explained, and ends when it should."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from stromboli.testkit.parts import ports, process
from stromboli.testkit.parts.part import Part

IDLE = "import signal; print('idle', flush=True); signal.pause()"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('stubborn', flush=True)\nwhile True: signal.pause()"
)


def python(code: str, log: Path, *, detached: bool = False) -> process.Process:
    return process.Process("child", [sys.executable, "-c", code], log, detached=detached)


async def started(child: process.Process) -> None:
    """Start a child of the above and wait until its code runs."""

    async def has_logged() -> bool:
        return bool(child.logged())

    child.start()
    await child.wait_ready(has_logged, timeout_s=30)


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


async def never_ready() -> bool:
    return False


async def test_a_process_that_ends_too_early_is_explained_by_its_log(tmp_path: Path) -> None:
    """The error carries the status and the end of the log."""
    child = python("import sys; print('no such option'); sys.exit(7)", tmp_path / "child.log")
    child.start()
    with pytest.raises(process.PartFailedError, match="status 7 before it was ready") as failed:
        await child.wait_ready(never_ready, timeout_s=30)
    assert "no such option" in str(failed.value)


async def test_a_process_that_is_never_ready_is_explained_by_its_log(tmp_path: Path) -> None:
    """A timeout carries the end of the log too."""
    child = python(IDLE, tmp_path / "child.log")
    await started(child)
    with pytest.raises(process.PartFailedError, match=r"not ready within 0 s.*\n.*idle"):
        await child.wait_ready(never_ready, timeout_s=0.1)
    await child.kill()


async def test_only_the_log_of_the_last_start_explains_it(tmp_path: Path) -> None:
    """The log file grows over restarts; an error shows only the last start."""
    child = python("print('life', flush=True)", tmp_path / "child.log")
    for _ in range(2):
        child.start()
        await child.wait()
    assert child.logged() == "life\n"
    assert (tmp_path / "child.log").read_text() == "life\nlife\n"


async def test_a_stubborn_process_is_killed_after_its_grace(tmp_path: Path) -> None:
    """Stop always ends it."""
    child = python(STUBBORN, tmp_path / "child.log")
    await started(child)
    await child.stop(grace_s=0.1)
    assert not child.is_running


def test_a_process_may_be_stopped_in_another_event_loop(tmp_path: Path) -> None:
    """A session's fixture starts it, a test with a loop of its own stops it."""
    child = python(IDLE, tmp_path / "child.log")
    asyncio.run(started(child))
    asyncio.run(child.stop())
    assert not child.is_running


PARENT = """
import os, sys
from pathlib import Path
from stromboli.testkit.parts import process
child = process.Process("child", [sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]),
                        detached=sys.argv[3] == "detached")
child.start()
while not child.logged():
    pass
print(child.pid, flush=True)
os._exit(0)
"""


def child_of_a_dead_parent(log: Path, bond: str) -> int:
    """The pid of an idle child whose parent was killed."""
    parent = subprocess.run(
        [sys.executable, "-c", PARENT, IDLE, str(log), bond],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return int(parent.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
async def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """Nothing is left of a test session that was killed."""
    pid = child_of_a_dead_parent(tmp_path / "child.log", "bound")
    await eventually(lambda: process.identify(pid) is None)


@pytest.mark.skipif(sys.platform != "linux", reason="identities are read from /proc")
async def test_a_detached_child_is_ended_by_its_identity_once(tmp_path: Path) -> None:
    """It outlives its parent; a process that knows its pid and start time can end exactly it."""
    identity = process.identify(child_of_a_dead_parent(tmp_path / "child.log", "detached"))
    assert identity is not None
    assert await process.end(identity)
    await eventually(lambda: process.identify(identity.pid) is None)
    assert not await process.end(identity)


@pytest.mark.skipif(sys.platform != "linux", reason="identities are read from /proc")
async def test_a_process_with_a_reused_pid_is_not_ended() -> None:
    """The same number with another start time is another process."""
    alive = process.identify(os.getpid())
    assert alive is not None
    assert not await process.end(process.Identity(alive.pid, alive.started_ticks - 1))


def test_free_ports_are_different_and_outside_the_ephemeral_range() -> None:
    """No outgoing connection can take a stopped server's port."""
    chosen = ports.free_ports(20)
    assert len(set(chosen)) == 20
    if ports.EPHEMERAL_RANGE.exists():
        assert max(chosen) < int(ports.EPHEMERAL_RANGE.read_text().split()[0])
    assert not any(ports.accepts_connections(port) for port in chosen)


class Listener(Part):
    """Listens on its port; the first `collisions` starts find it taken."""

    name: ClassVar[str] = "listener"

    def __init__(self, state: Path, *, collisions: int = 0) -> None:
        super().__init__(state)
        self.collisions = collisions
        self.seen: list[int] = []

    def command(self) -> list[str]:
        self.seen.append(self.ports[0])
        if len(self.seen) <= self.collisions:
            code = "raise OSError('[Errno 98] Address already in use')"
        else:
            code = (
                "import signal, socket; s = socket.create_server(('127.0.0.1', "
                f"{self.ports[0]})); signal.pause()"
            )
        return [sys.executable, "-c", code]

    async def is_ready(self) -> bool:
        return ports.accepts_connections(self.ports[0])


async def test_a_part_tries_another_port_when_its_port_is_taken(tmp_path: Path) -> None:
    """Another process may bind the port between its choice and its use."""
    listener = Listener(tmp_path, collisions=2)
    await listener.start()
    assert len(set(listener.seen)) == 3
    await listener.stop()


async def test_a_part_fails_when_all_ports_are_in_use(tmp_path: Path) -> None:
    """Three collisions are no accident."""
    with pytest.raises(process.PartFailedError, match="already in use"):
        await Listener(tmp_path, collisions=3).start()


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_part_starts_again_on_its_port(tmp_path: Path, end: str) -> None:
    """Clients find it where it was."""
    listener = Listener(tmp_path)
    await listener.start()
    await getattr(listener, end)()
    await listener.start()
    assert len(set(listener.seen)) == 1
    await listener.stop()
