"""Builds source distributions and wheels of all packages, and checks that they can be installed.

Each wheel is built from its source distribution, so a file that is missing there fails the build.
The check installs the wheels and their locked dependencies into a new virtual environment, without
the repository on the path, and runs ``strom version`` and ``strom demo`` there.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import environment

ROOT = Path(__file__).parents[2]
LOCKS = {
    "stromboli-requirements.txt": "requirements.txt",
    "stromboli-integrations-requirements.txt": "integrations/requirements.txt",
}
"""File of a release -> the lock that is copied to it, for ``uv pip install --constraints``."""


NAMES = ("stromboli[-_]*", "snakemake_executor_plugin_strom-*")
"""Patterns of the names of our packages. Snakemake finds its plugins by the prefix of their
names."""


def packages(root: Path) -> list[str]:
    """The workspace's members that users install: all except the test kit."""
    return [member for member in environment.members(root) if not member.startswith("tests/")]


def build(folder: Path) -> list[Path]:
    """Build all packages into ``folder``, copy the locks and return the wheels.

    Raises subprocess.CalledProcessError if a build fails.
    """
    for member in packages(ROOT):
        _run(
            [
                ROOT / ".venv/bin/uv",
                *("build", ROOT / member, "--out-dir", folder),
                *("--no-build-isolation", "--python", ROOT / ".venv/bin/python"),
                *("--no-create-gitignore", "--quiet"),
            ]
        )
    for name, lock in LOCKS.items():
        shutil.copyfile(ROOT / lock, folder / name)
    return [path for path in own_files(folder) if path.suffix == ".whl"]


def own_files(folder: Path) -> list[Path]:
    """The files of a release in a folder, sorted, without the checksums and unrelated files."""
    return sorted(path for name in NAMES for path in folder.glob(name))


def install(wheels: Sequence[Path], target: Path) -> Path:
    """Install wheels and their locked dependencies into a new virtual environment and return its
    Python.

    Raises subprocess.CalledProcessError, for example if the package index is not reachable.
    """
    uv, python = ROOT / ".venv/bin/uv", target / "bin/python"
    settings = _run([ROOT / ".venv/bin/python", "-m", "pip", "config", "list"])
    variables = environment.uv_environment(environment.pip_settings(settings), os.environ)
    _run([uv, "venv", "--quiet", "--python", ROOT / ".venv/bin/python", target], variables)
    command: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", python]
    locks = [word for lock in LOCKS for word in ("--constraints", wheels[0].parent / lock)]
    _run([*command, *locks, *wheels], variables)
    return python


def check(wheels: Sequence[Path]) -> str:
    """Install the wheels away from the repository, run the demo, and return what ``strom version``
    prints."""
    with tempfile.TemporaryDirectory() as folder:
        python = install(wheels, Path(folder) / "venv")
        strom = python.parent / "strom"
        _run([strom, "demo"], folder=folder)
        return _run([strom, "version"], folder=folder)


def _run(
    command: Sequence[str | Path],
    variables: dict[str, str] | None = None,
    folder: str | Path | None = None,
) -> str:
    clean = {
        name: value for name, value in (variables or os.environ).items() if name != "PYTHONPATH"
    }
    done = subprocess.run(
        command, env=clean, cwd=folder, check=False, text=True, stdout=subprocess.PIPE
    )
    done.check_returncode()
    return done.stdout
