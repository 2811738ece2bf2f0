"""A container engine on this machine: Docker's daemon, in namespaces of its own.

The daemon and its containers run in network, mount and PID namespaces: bridges, rules of iptables,
mounts and processes end with the first process, however it ends, and published ports belong to the
namespace, so that several engines share a machine. slirp4netns connects the namespace with the
network in user space, without changes of the machine's routes or rules. Visible outside are a
parent cgroup, which is recorded and removed like the cgroup of kubelets, and the folder of images,
which all clones of a user share: one engine at a time runs on it.

Needs root, Linux, and what ``make engine-tools`` finds or installs.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, TextIO

from stromboli.testkit.parts import kubelets
from stromboli.testkit.parts.part import Part
from stromboli.testkit.parts.tools import EngineTools

DEVICE = "tap0"
"""Network device of the namespace."""
SEPARATED = "namespaces are ready"
CONNECTED = "received tapfd"
DELETED_AFTER = "24h"
"""Untagged images of this age are deleted: a day of builds leaves tens of gigabytes."""
COMMAND_LIMIT_S = 900


class EngineError(Exception):
    """A command of the engine failed; the text has its output."""


class _Daemon(Part):
    """The daemon as the first process of its namespaces; it waits for the network device."""

    name: ClassVar[str] = "dockerd"
    port_count: ClassVar[int] = 0

    def __init__(self, tools: EngineTools, state: Path, images: Path, cgroup: str) -> None:
        super().__init__(state)
        self._tools = tools
        self._images = images
        self._cgroup = cgroup

    @property
    def socket(self) -> Path:
        """The Unix socket on which the daemon listens."""
        return self.state / "docker.sock"

    def command(self) -> list[str]:
        """The command that runs the script in new namespaces."""
        namespaces = ["--mount", "--net", "--propagation=private", "--pid", "--fork"]
        script = str(self.state / "engine.sh")
        return [self._tools.unshare, *namespaces, "--kill-child", "/bin/sh", script]

    def environment(self) -> dict[str, str]:
        """The programs that the daemon starts are on its PATH."""
        used = (self._tools.containerd, self._tools.runc, self._tools.iptables, self._tools.ip)
        folders = [*(str(Path(path).parent) for path in used), os.environ.get("PATH", os.defpath)]
        return {"PATH": os.pathsep.join(dict.fromkeys(folders))}

    async def prepare(self) -> None:
        """Write the script."""
        daemon = [
            self._tools.dockerd,
            f"--host=unix://{self.socket}",
            f"--data-root={self._images}",
            "--exec-root=/run/docker",
            "--pidfile=/run/docker.pid",
            f"--cgroup-parent=/{self._cgroup}",
            "--exec-opt=native.cgroupdriver=cgroupfs",
        ]
        (self.state / "engine.sh").write_text(f"""set -eu
mount -t tmpfs tmpfs /run
mount -t proc proc /proc
ip link set lo up
echo {SEPARATED}
until ip address show {DEVICE} 2>/dev/null | grep -q ' inet '; do sleep 0.1; done
{shlex.join(daemon)} &
daemon=$!
trap 'kill -TERM $daemon && wait $daemon; exit' TERM
wait $daemon
""")

    async def is_ready(self) -> bool:
        """Whether the namespaces exist: the daemon starts when they are connected."""
        return SEPARATED in self.process.logged()


class _Network(Part):
    """The connection of a process's network namespace."""

    name: ClassVar[str] = "slirp4netns"
    port_count: ClassVar[int] = 0

    def __init__(self, tools: EngineTools, state: Path, pid: int) -> None:
        super().__init__(state)
        self._program = tools.slirp4netns
        self._pid = pid

    def command(self) -> list[str]:
        """The command of slirp4netns, which runs outside and creates the device in the
        namespace."""
        options = ["--configure", "--mtu=65520", "--disable-host-loopback"]
        return [self._program, *options, str(self._pid), DEVICE]

    async def is_ready(self) -> bool:
        """Whether the device exists."""
        return CONNECTED in self.process.logged()


class Engine:
    """A running engine: started on entry, undone on exit."""

    def __init__(self, tools: EngineTools, state: Path) -> None:
        """``state``: the folder for socket and logs; its path must be short, because socket paths
        are limited."""
        self.tools = tools
        self.state = state.resolve()
        self._cgroup = f"stromengine{os.getpid()}"
        self._images = Path(tools.cache) / "engine"
        self._record = kubelets.RECORDS / f"stromboli-kubelets-engine-{os.getpid()}.json"
        self._daemon = _Daemon(tools, self.state, self._images, self._cgroup)
        self._network: _Network | None = None
        self._lock: TextIO | None = None

    async def start(self) -> None:
        """Wait until no other engine has the folder of images, then start."""
        await asyncio.to_thread(self._prepare)
        try:
            await self._daemon.start()
            self._network = _Network(self.tools, self.state, self._daemon.process.pid)
            await self._network.start()
            await self._daemon.process.wait_ready(self._answers, self._daemon.ready_timeout_s)
            prune = ("system", "prune", "--force", "--filter", f"until={DELETED_AFTER}")
            await asyncio.to_thread(self.docker, *prune)
        except BaseException:
            await self.stop()
            raise

    def _prepare(self) -> None:
        kubelets.undo_ended()
        self._images.mkdir(parents=True, exist_ok=True)
        plugins = self.state / "docker" / "cli-plugins"
        plugins.mkdir(parents=True, exist_ok=True)
        (plugins / "docker-compose").symlink_to(self.tools.compose)
        self._lock = (self._images.parent / ".engine.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # the kernel releases it when this process ends
        self._record.write_text(json.dumps({"network": self._cgroup, "settings": {}}))

    async def _answers(self) -> bool:
        requested = await asyncio.create_subprocess_exec(
            self.tools.docker,
            "version",
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return await requested.wait() == 0

    async def stop(self) -> None:
        """Stop the daemon, which ends its containers, and undo what is visible outside."""
        await self._daemon.stop()
        if self._network is not None:
            await self._network.stop()
        if self._record.exists():
            await asyncio.to_thread(kubelets.undo, self._record)
        if self._lock is not None:
            self._lock.close()

    async def __aenter__(self) -> Engine:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it."""
        await self.stop()

    def environment(self) -> dict[str, str]:
        """The variables with which ``docker`` finds this engine, beside our own."""
        own = {
            "DOCKER_HOST": f"unix://{self._daemon.socket}",
            "DOCKER_CONFIG": str(self.state / "docker"),
        }
        return {**os.environ, **own}

    def docker(
        self, *arguments: str, folder: Path | None = None, given: Mapping[str, str] | None = None
    ) -> str:
        """Run ``docker``; return its output. ``folder``: its working directory; ``given``: further
        environment variables. Raises EngineError."""
        command = [self.tools.docker, *arguments]
        return _output(command, folder, {**self.environment(), **(given or {})})

    def inside(self, command: Sequence[str], *, folder: Path | None = None) -> str:
        """Run a program in the engine's network namespace, which has the published ports; return
        its output. Raises EngineError."""
        enter = [self.tools.nsenter, f"--net=/proc/{self._daemon.process.pid}/ns/net"]
        return _output([*enter, *command], folder, dict(os.environ))


def _output(command: Sequence[str], folder: Path | None, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_LIMIT_S,
    )
    if done.returncode != 0:
        raise EngineError(f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout
