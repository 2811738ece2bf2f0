"""compose.yaml without a container engine: its services as processes of this machine.

Each service runs as configured: its image's program with its command, environment, files and health
check, in the order of its dependencies. One substitution replaces the engine's network and mounts.
In every text of a service

* the name of a service before a port, or alone, is that service's own address in 127.0.0.0/8,
* ``0.0.0.0`` and ``127.0.0.1`` are the service's own address: a container is a machine of its own,
* a path inside the container is the path of its volume here.

The control plane has a port of 127.0.0.1 instead, where its parts communicate. Users, capabilities,
limits and published ports need an engine and are not tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from stromboli.admission.settings import Settings as AdmissionSettings
from stromboli.console.settings import Settings as ConsoleSettings
from stromboli.controller.settings import Settings as ControllerSettings
from stromboli.history.settings import Settings as HistorySettings
from stromboli.monitor.settings import Settings as MonitorSettings
from stromboli.scheduler.settings import Settings as SchedulerSettings
from stromboli.testkit.parts import ports, tools
from stromboli.testkit.parts.process import Process
from tests.images.support import image_build

FOLDER = image_build.ROOT / "compose"
FILE = FOLDER / "compose.yaml"
SETTINGS: Mapping[str, type[msgspec.Struct]] = {
    "admission": AdmissionSettings,
    "console": ConsoleSettings,
    "controller": ControllerSettings,
    "history": HistorySettings,
    "monitor": MonitorSettings,
    "scheduler": SchedulerSettings,
}
OURS = tuple(SETTINGS)
NOT_HERE = {
    "grafana": "it comes from no registry of packages that programs are built from",
    "collector": "as above; what it is sent is taken by the test",
}
"""Services that are not run, and why."""
CLOSED_FOLDER, CLOSED_FILE = 0o700, 0o600
"""Modes of a clone that was made with a umask of 077."""
HEALTHY_WITHIN_S = 240.0  # a busy machine
WGET = "import sys, urllib.request; urllib.request.urlopen(sys.argv[-1], timeout=2)"
"""Images made of busybox have a wget; this machine may have none."""
LOG4J = {
    "Configuration": {
        "Properties": {"Property": []},
        "Appenders": {"Console": {"name": "STDOUT"}},
        "Loggers": {
            "Root": {"level": "WARN", "AppenderRef": [{"ref": "STDOUT"}]},
            "Logger": [{"name": "kafka", "level": "WARN"}],
        },
    }
}
Service = Mapping[str, Any]


def model(checker: str) -> dict[str, Any]:
    """compose.yaml as Docker's own reader has it: checked against its schema, merged, complete.

    ``checker``: compose-go's program. Raises CalledProcessError when it is refused.
    """
    read = subprocess.run(
        [checker, "-format=json", FILE.name], cwd=FOLDER, check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(read.stdout)
    return found


def parsed() -> dict[str, Any]:
    """compose.yaml as it is written, its aliases resolved, without any variable set."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", FILE.read_text())
    found: dict[str, Any] = yaml.safe_load(text)
    return found


class ComposeServices:
    """All services that can be run here; started on entry, stopped on exit."""

    def __init__(
        self,
        found: Mapping[str, Any],
        images: Mapping[str, image_build.Image],
        programs: tools.Tools,
        state: Path,
        only: Collection[str] | None = None,
    ) -> None:
        """``found``: what ``model`` read; ``images``: ours, as built; ``state``: for all files;
        ``only``: the services to run, None for all."""
        self._services: Mapping[str, Service] = {
            name: each
            for name, each in found["services"].items()
            if name not in NOT_HERE and (only is None or name in only)
        }
        self._images = images
        self._tools = programs
        self._state = state
        net = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(250) + 1}"
        self._addresses = {name: f"{net}.{row + 1}" for row, name in enumerate(found["services"])}
        (self._control_plane_port,) = ports.free_ports(1)
        self._processes: dict[str, Process] = {}
        self._states = {name: _State() for name in self._services}

    def url(self, service: str, port: int) -> str:
        """Where a service listens."""
        return "http://" + self._local(f"{service}:{port}", service)

    def address(self, service: str) -> str:
        """A service's own."""
        return self._addresses[service]

    async def check_health(self, service: str) -> int:
        """The exit status of its health check, as an engine would see it."""
        words = self._services[service]["healthcheck"]["test"]
        assert words[0] == "CMD"
        local = [self._local(word, service) for word in words[1:]]
        wget = [sys.executable, "-c", WGET, *local[1:]]
        argv = wget if local[0] == "wget" else [self._program(service, local[0]), *local[1:]]
        running = await asyncio.create_subprocess_exec(
            *argv,
            env=self._environment(service),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return await running.wait()

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        """As ``docker compose up --wait``."""
        try:
            async with asyncio.timeout(HEALTHY_WITHIN_S), asyncio.TaskGroup() as group:
                for name in self._services:
                    group.create_task(self._bring_up(name))
            yield
        finally:
            await self._down()

    async def _bring_up(self, name: str) -> None:
        for other, how in self._services[name].get("depends_on", {}).items():
            await self._states[other].reached[how["condition"]].wait()
        await self.start(name)

    async def start(self, name: str) -> None:
        """As ``docker compose start``: returns when it is healthy, or has ended well."""
        process = self._process(name)
        self._processes[name] = process
        process.start()
        if "healthcheck" not in self._services[name]:
            status = await process.wait()
            if status != 0:
                raise process.failed(f"ended with {status}")
            self._states[name].reached["service_completed_successfully"].set()
            return
        while await self.check_health(name) != 0:
            if not process.is_running:
                raise process.failed("ended before it was healthy")
            await asyncio.sleep(0.2)
        self._states[name].reached["service_healthy"].set()

    async def stop(self, service: str) -> int:
        """As ``docker compose stop``; returns the exit status, -9 if it had to be killed, which is
        later than by an engine: on a busy machine a quick end takes longer."""
        process = self._processes[service]
        await process.stop(grace_s=60.0)
        return await process.wait()

    def volume(self, name: str) -> Path:
        """Where a volume lies here."""
        return self._state / "volumes" / name

    def home(self, service: str) -> Path:
        """The home folder of a service's user."""
        return self._home(service)

    async def _down(self) -> None:
        first = [each for name, each in self._processes.items() if name in OURS]
        await asyncio.gather(*(process.stop() for process in first))
        await asyncio.gather(*(process.stop() for process in self._processes.values()))
        if "control-plane" in self._processes:
            # Its parts are daemons: in a container they would end with it.
            deleting = await asyncio.create_subprocess_exec(
                self._program("control-plane", "kwokctl"),
                "delete",
                "cluster",
                env=self._environment("control-plane"),
                stderr=asyncio.subprocess.DEVNULL,
            )
            await deleting.wait()

    # What a service is here

    def _process(self, name: str) -> Process:
        argv = self._argv(name)
        shell = shutil.which("env")
        assert shell is not None
        # Nothing of our own environment: a container has none of it.
        only = [f"{key}={value}" for key, value in self._environment(name).items()]
        return Process(name, [shell, "-i", *only, *argv], self._state / f"{name}.log")

    def _argv(self, name: str) -> list[str]:
        command = [self._local(word, name) for word in self._services[name].get("command") or []]
        if name in OURS:
            built = self._images[name]
            return [self._program(name, built.entrypoint[0]), *built.entrypoint[1:], *command]
        if entrypoint := self._services[name].get("entrypoint"):
            return [*(self._local(word, name) for word in entrypoint), *command]
        match self._services[name]["image"].partition(":")[0]:
            case "apache/kafka":
                return self._kafka(name)
            case "registry.k8s.io/kubectl":
                return [self._program(name, "kubectl"), *command]
            case "prom/prometheus":
                return [self._program(name, "prometheus"), *command]
        raise ValueError(f"{self._services[name]['image']}: nobody said what its program is")

    def _kafka(self, name: str) -> list[str]:
        """What the image's start script does: settings from the environment, by Kafka's own
        wrapper, which also makes the storage, then the broker."""
        home = self._state / name
        for folder in ("default", "mounted", "final"):
            (home / folder).mkdir(parents=True)
        (home / "default" / "server.properties").touch()
        for file in ("log4j2.yaml", "tools-log4j2.yaml"):
            (home / "default" / file).write_text(yaml.safe_dump(LOG4J))
        java = [str(self._tools.java), "-cp", f"{self._tools.libs}/*"]
        folders = [
            f"--{kind}-configs-dir={home / kind}" for kind in ("default", "mounted", "final")
        ]
        wrapper = [*java, "kafka.docker.KafkaDockerWrapper", "setup", *folders]
        heap = self._services[name]["environment"]["KAFKA_HEAP_OPTS"].split()
        broker = [java[0], *heap, *java[1:], "kafka.Kafka", str(home / "final/server.properties")]
        both = " && exec ".join(_quoted(words) for words in (wrapper, broker))
        return ["/bin/sh", "-c", both]

    def _environment(self, name: str) -> dict[str, str]:
        given = self._services[name].get("environment") or {}
        own = {key: self._local(str(value), name) for key, value in given.items()}
        path = f"{self._tools.bin}:{Path(self._tools.java).parent}:{os.defpath}"
        if name in OURS:
            built = self._images[name]
            # The default addresses are exclusive in a container only.
            hosts = {
                f"STROM_{name.upper()}_{field.name.upper()}": self._addresses[name]
                for field in msgspec.structs.fields(SETTINGS[name])
                if field.name.endswith("_host")
            }
            own = {**built.environment, **hosts, **own}
        if name == "control-plane":
            own |= self._kwok_environment()
        return {"PATH": path, "HOME": str(self._home(name)), **own}

    def _kwok_environment(self) -> dict[str, str]:
        """What the image's Dockerfile sets, with our programs and our port."""
        kept = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
        names = {each: f"KWOK_{each.upper().replace('-', '_')}_BINARY" for each in kept}
        return {
            "KWOK_RUNTIME": "binary",
            "KWOK_KUBE_APISERVER_PORT": "0",
            "KWOK_KUBE_APISERVER_INSECURE_PORT": str(self._control_plane_port),
            "KWOK_BIND_ADDRESS": ports.LOOPBACK,
            "KWOK_KUBE_VERSION": _version(self._tools.program("kubectl")),
            "KWOK_CONTROLLER_BINARY": self._tools.program("kwok"),
            **{variable: self._tools.program(each) for each, variable in names.items()},
        }

    def _program(self, name: str, word: str) -> str:
        """Where a program of a service's image is here."""
        if name in OURS:
            return str(self._images[name].root / "opt/stromboli/bin" / word)
        known = self._tools.bin / word
        found = str(known) if known.exists() else shutil.which(word)
        if found is None:
            raise FileNotFoundError(f"{name} runs {word}, which is not on this machine")
        return found

    def _home(self, name: str) -> Path:
        home = self._state / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        return home

    # The substitution

    def _local(self, text: str, service: str) -> str:
        mounts = dict(self._mounts(service))
        if mounts:
            longest_first = "|".join(map(re.escape, sorted(mounts, reverse=True)))
            below = rf"(?<![\w.-])(?:{longest_first})(?![\w.-])"
            text = re.sub(below, lambda match: str(mounts[match[0]]), text)
        return self._addressed(text, service)

    def _addressed(self, text: str, service: str) -> str:
        own = self._addresses[service]
        text = re.sub(r"(?<![\d.])(0\.0\.0\.0|127\.0\.0\.1)(?![\d.])", own, text)
        plane = r"(?<![\w./-])control-plane:8080\b|(?<=//)control-plane:8080\b"
        text = re.sub(plane, f"{ports.LOOPBACK}:{self._control_plane_port}", text)
        for name, address in self._addresses.items():
            text = re.sub(rf"(?:(?<![\w./-])|(?<=//)){name}(?=:\d)", address, text)
            text = address if text == name else text
        return text

    def _mounts(self, service: str) -> Iterator[tuple[str, Path]]:
        """(path in the container, path here), with files changed like all texts."""
        for path in self._services[service].get("tmpfs") or []:
            here = self._state / "tmpfs" / service
            here.mkdir(parents=True, exist_ok=True)
            yield path, here
        for mount in self._services[service].get("volumes") or []:
            if mount["type"] == "volume":
                here = self.volume(mount["source"])
                here.mkdir(parents=True, exist_ok=True)
            else:
                here = self._copied(Path(mount["source"]), mount["target"], service)
            yield mount["target"], here

    def _copied(self, source: Path, target: str, service: str) -> Path:
        here = self._state / "mounts" / service / target.lstrip("/")
        if here.exists():
            return here
        for file in filter(Path.is_file, sorted(source.rglob("*"))):
            copy = here / file.relative_to(source)
            copy.parent.mkdir(mode=CLOSED_FOLDER, parents=True, exist_ok=True)
            copy.touch(mode=CLOSED_FILE)
            try:
                copy.write_text(self._addressed(file.read_text(), service))
            except UnicodeDecodeError:  # byte code beside modules
                copy.write_bytes(file.read_bytes())
        return here


class _State:
    def __init__(self) -> None:
        self.reached = {
            "service_healthy": asyncio.Event(),
            "service_completed_successfully": asyncio.Event(),
        }


def _version(kubectl: str) -> str:
    reported = subprocess.run(
        [kubectl, "version", "--client", "--output=json"], check=True, capture_output=True
    )
    version: str = json.loads(reported.stdout)["clientVersion"]["gitVersion"]
    return version


def _quoted(words: Sequence[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
