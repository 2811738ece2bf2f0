"""Images without a container engine: a Dockerfile's own steps, run in a folder.

Each stage is a folder; absolute paths of the Dockerfile are below it, and `python` is the
interpreter of the tests. What only an engine can do is not tested: the user, and the read-only
root.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import dockerfile_parse
import msgspec

ROOT = Path(__file__).parents[3]


class Step(msgspec.Struct, frozen=True):
    """An instruction in capitals, and what follows it."""

    instruction: str
    value: str


class Image(msgspec.Struct, frozen=True):
    """A built image. ``root``: the folder for ``/``."""

    root: Path
    environment: Mapping[str, str]
    entrypoint: list[str]
    healthcheck: list[str]
    user: str


def dockerfile(service: str) -> list[Step]:
    """The steps of a service's Dockerfile, in order."""
    path = ROOT / "services" / service / "Dockerfile"
    parsed = dockerfile_parse.DockerfileParser(str(path)).structure
    return [
        Step(each["instruction"], each["value"])
        for each in parsed
        if each["instruction"] != "COMMENT"
    ]


def build(service: str, where: Path) -> Image:
    """Run the install steps of all stages below ``where``. Raises CalledProcessError."""
    stages: dict[str, Path] = {}
    stage = Stage(where)
    for step in dockerfile(service):
        if step.instruction == "FROM":
            name = step.value.partition(" AS ")[2] or "final"
            stage = Stage(where / name)
            stages[name] = stage.root
        else:
            stage.take(step, stages)
    return Image(stage.root, stage.environment, stage.entrypoint, stage.healthcheck, stage.user)


class Stage:
    """One stage of a Dockerfile; ``arguments``: values of build arguments by name."""

    def __init__(self, root: Path, arguments: Mapping[str, str] | None = None) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.arguments: dict[str, str] = {}
        self._given = arguments or {}
        self.environment: dict[str, str] = {}
        self.entrypoint: list[str] = []
        self.healthcheck: list[str] = []
        self.user = ""
        self._at = root

    def take(self, step: Step, stages: Mapping[str, Path]) -> None:
        """Run one step; ``stages``: folders of earlier stages by name."""
        match step.instruction:
            case "WORKDIR":
                self._at = self.root / step.value.lstrip("/")
                self._at.mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(shlex.split(step.value), stages)
            case "RUN":
                self._run(step.value)
            case "ARG":
                name, _, default = step.value.partition("=")
                self.arguments[name] = self._given.get(name, default.strip('"'))
            case "ENV":
                name, _, value = step.value.partition("=")
                path = f"{os.environ['PATH']}:{self.environment.get('PATH', '')}".rstrip(":")
                self.environment[name] = self._below(value).replace("$PATH", path)
            case "USER":
                self.user = step.value
            case "ENTRYPOINT":
                self.entrypoint = json.loads(step.value)
            case "HEALTHCHECK":
                self.healthcheck = json.loads(step.value.partition("CMD ")[2])
            case "EXPOSE":
                pass
            case other:
                raise ValueError(f"no image here has {other}")

    def _copy(self, words: list[str], stages: Mapping[str, Path]) -> None:
        origin = ROOT
        if words[0].startswith("--from="):
            origin = stages[words.pop(0).removeprefix("--from=")]
        source, target = words
        path = origin / source.lstrip("/")
        goal = self.root / target.lstrip("/") if target.startswith("/") else self._at / target
        goal.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            ignored = shutil.ignore_patterns("tests", "__pycache__") if origin == ROOT else None
            shutil.copytree(path, goal, symlinks=True, dirs_exist_ok=True, ignore=ignored)
        else:
            shutil.copy2(path, goal)

    def _run(self, command: str) -> None:
        # The folder of this Python is first on PATH, as Python in the base image.
        path = f"{Path(sys.base_prefix) / 'bin'}:{os.environ['PATH']}"
        machine = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        # What the machine sets holds: its trust may have certificates that its proxy needs.
        environment = {**self.environment, **self.arguments, **machine, "PATH": path}
        subprocess.run(
            self._below(command), shell=True, check=True, cwd=self._at, env=environment,
            capture_output=True, text=True,
        )  # fmt: skip

    def _below(self, text: str) -> str:
        """With absolute paths of the image below its folder."""
        return re.sub(r"(?<![\w./:])/(opt|build)\b", rf"{self.root}/\1", text)


def requirements(service: str) -> dict[str, str]:
    """Package -> version, as a service's image installs them."""
    return dict(_pins(ROOT / "services" / service / "requirements.txt"))


def locked() -> dict[str, str]:
    """Package -> version, as the lock of the whole workspace has them."""
    return dict(_pins(ROOT / "requirements.txt"))


def _pins(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text().splitlines():
        match = re.match(r"([\w.\-]+)==([^ ;\\]+)", line)
        if match:
            yield match[1], match[2]
