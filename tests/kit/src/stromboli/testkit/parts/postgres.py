"""A real PostgreSQL for tests: Debian's package ``postgresql``, or the one on PATH.

It runs without access rules on a free port of loopback, with its data in a temporary folder. It
refuses to run as root, so root runs it as ``nobody``.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from stromboli.testkit.parts import ports

UNPRIVILEGED_UID = 65534
READY_WITHIN_S = 120.0
POLL_EVERY_S = 0.05
USER = "strom"


class PostgresMissingError(Exception):
    """No PostgreSQL is installed."""


class Server:
    """A running server. ``restart`` and ``kill`` are for tests of its absence."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        (self.port,) = ports.free_ports(1)
        self._databases = 0
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        """The URL of a database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        self._databases += 1
        name = f"test{self._databases}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, name)
        return self.url(name)

    def initialize(self) -> None:
        """Create the folder of the data."""
        self._run("initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "--no-sync", "-E",
                  "UTF8", "--locale", "C")  # fmt: skip

    def start(self) -> None:
        """Start, and return when it accepts connections. Raises TimeoutError with its log."""
        log = self._folder / "log"
        with log.open("ab") as written:
            self._process = subprocess.Popen(
                [*_unprivileged(), str(self._programs / "postgres"), "-D", str(self._data),
                 "-p", str(self.port), "-k", str(self._folder), "-c", "fsync=off",
                 "-c", "listen_addresses=127.0.0.1"],
                stdout=written, stderr=written,
            )  # fmt: skip
        deadline = time.monotonic() + READY_WITHIN_S
        while not self._is_ready():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise TimeoutError(log.read_text()[-2000:])
            time.sleep(POLL_EVERY_S)

    def kill(self) -> None:
        """Kill the server, so that it cannot close connections."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                # SIGQUIT: the immediate shutdown, which also ends the server's own processes.
                self._process.send_signal(3)
            self._process.wait(READY_WITHIN_S)
            self._process = None

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _is_ready(self) -> bool:
        requested = [
            str(self._programs / "pg_isready"),
            "-q",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        return subprocess.run(requested, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        command = [*_unprivileged(), str(self._programs / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr[-2000:]}")


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server while inside. Raises PostgresMissingError."""
    programs = locate()
    with tempfile.TemporaryDirectory(prefix="strom-postgres-") as name:
        folder = Path(name)
        if os.getuid() == 0:
            os.chown(folder, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
        server = Server(programs, folder)
        server.initialize()
        server.start()
        try:
            yield server
        finally:
            server.kill()


def locate() -> Path:
    """The folder of the server's programs, from PATH or Debian's newest package. Raises
    PostgresMissingError."""
    found = shutil.which("initdb")
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found is None and not packaged:
        raise PostgresMissingError(
            "no PostgreSQL is installed; make real-tools installs Debian's package"
        )
    return (Path(found).resolve() if found else packaged[-1]).parent


def _unprivileged() -> list[str]:
    if os.getuid():
        return []
    identity = str(UNPRIVILEGED_UID)
    return ["setpriv", "--reuid", identity, "--regid", identity, "--clear-groups"]
