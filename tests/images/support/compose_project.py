"""Compose's project under a container engine: a clone of the working tree, and its commands.

The clone has the modes that a umask of 077 gives: its files are readable by their owner alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from stromboli.testkit.parts.engine import images
from stromboli.testkit.parts.engine.daemon import Engine, EngineError
from stromboli.testkit.parts.tools import Tools
from tests.images.support import compose_services, image_build

BIN = Path(sys.executable).parent
OTHERS = ("kafka", "control-plane", "prometheus")
SERVICES = (*OTHERS, *compose_services.OURS)
"""Those that run here; ``files`` and ``setup`` run before them and end."""
REST = "http://127.0.0.1:8480"
KUBERNETES = "http://127.0.0.1:8080"
PROMETHEUS = "http://127.0.0.1:9090"
READY_WITHIN_S = "300"
CLOSED = 0o700


class ComposeProject:
    """The project of a clone below ``state``."""

    def __init__(self, engine: Engine, tools: Tools, state: Path) -> None:
        self.clone = state / "clone"
        self.folder = self.clone / "compose"
        self._engine = engine
        self._kubectl = tools.program("kubectl")

    def make_images(self, tools: Tools) -> None:
        """The third-party images under the names in compose.yaml, and the base image of ours."""
        named = compose_services.parsed()["services"]
        images.make_python(self._engine)
        recipes = {
            "control-plane": images.control_plane(self._engine, tools),
            "setup": images.kubectl(tools),
            "prometheus": images.prometheus(self._engine, tools),
            "kafka": images.kafka(tools),
        }
        for service, recipe in recipes.items():
            images.make(self._engine, named[service]["image"], recipe)

    def copy_clone(self) -> None:
        """All files of the working tree that git knows or does not ignore."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=image_build.ROOT,
            check=True,
            capture_output=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = image_build.ROOT / name, self.clone / name
            if not source.exists():
                continue
            target.parent.mkdir(mode=CLOSED, parents=True, exist_ok=True)
            if source.is_symlink():
                target.symlink_to(os.readlink(source))
            else:
                shutil.copyfile(source, target)
                target.chmod(source.stat().st_mode & CLOSED)
        for folder in (self.clone, *filter(Path.is_dir, self.clone.rglob("*"))):
            if not folder.is_symlink():
                folder.chmod(CLOSED)

    def compose(self, *arguments: str) -> str:
        """What ``docker compose`` prints in the project's folder. Raises EngineError."""
        given = {"CA_CERTIFICATES": images.certificates()}
        return self._engine.docker("compose", *arguments, folder=self.folder, given=given)

    def up(self) -> None:
        """Start all services whose images exist here; returns when they are healthy."""
        waiting = ("--wait", "--wait-timeout", READY_WITHIN_S)
        try:
            self.compose("up", "--detach", "--no-build", *waiting, *SERVICES)
        except EngineError as error:
            logs = self.compose("logs", "--tail=20", "--no-color")
            raise EngineError(f"{error}\n{logs}") from None

    def strom(self, *arguments: str) -> str:
        """What ``strom`` prints on this machine, through the published port."""
        words = list(arguments)
        end = words.index("--") if "--" in words else len(words)
        words[end:end] = ["--server", REST]
        return self.run(str(BIN / "strom"), *words)

    def kubectl(self, *arguments: str) -> str:
        """What ``kubectl`` prints on this machine, through the published port."""
        return self.run(self._kubectl, "--server", KUBERNETES, *arguments)

    def run(self, *command: str) -> str:
        """What a program prints on this machine, in the project's folder."""
        return self._engine.inside(command, folder=self.folder)

    def run_example(self, name: str, job: str) -> None:
        """Apply a file of examples/ and wait until its job has finished."""
        self.strom("apply", "-f", f"../examples/{name}.yaml")
        self.strom("job", "wait", job)

    def containers(self) -> dict[str, dict[str, Any]]:
        """Service -> the state of its container, as the engine has it."""
        listed = self.compose("ps", "--all", "--quiet").split()
        found = json.loads(self._engine.docker("inspect", *listed)) if listed else []
        label = "com.docker.compose.service"
        return {each["Config"]["Labels"][label]: each for each in found}
