"""Source distributions and wheels of all packages, with a check that they install: ``make dist``.

Each wheel is built from its source distribution, so a file that is missing there fails the build.
The check installs the wheels and their locked dependencies into a new virtual environment, without
the repository on the path, and runs ``strom version``.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import environment

ROOT = Path(__file__).parents[1]
CHECKSUMS = "SHA256SUMS"


def packages(root: Path) -> list[str]:
    """The workspace's members that users install: all but the test kit."""
    return [member for member in environment.members(root) if not member.startswith("tests/")]


def build(folder: Path) -> list[Path]:
    """Build all packages into ``folder`` and return the wheels. Files of other builds are removed.

    Raises subprocess.CalledProcessError if a build fails.
    """
    for old in (*folder.glob("stromboli_*.tar.gz"), *folder.glob("stromboli_*.whl")):
        old.unlink()
    for member in packages(ROOT):
        _run(
            [
                ROOT / ".venv/bin/uv",
                *("build", ROOT / member, "--out-dir", folder),
                *("--no-build-isolation", "--python", ROOT / ".venv/bin/python"),
                *("--no-create-gitignore", "--quiet"),
            ]
        )
    built = sorted((*folder.glob("stromboli_*.tar.gz"), *folder.glob("stromboli_*.whl")))
    digests = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built]
    (folder / CHECKSUMS).write_text("".join(digests))
    return [path for path in built if path.suffix == ".whl"]


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
    _run([*command, "--constraints", ROOT / "requirements.txt", *wheels], variables)
    return python


def check(wheels: Sequence[Path]) -> str:
    """Install the wheels away from the repository and return what ``strom version`` prints."""
    with tempfile.TemporaryDirectory() as folder:
        python = install(wheels, Path(folder) / "venv")
        strom = python.parent / "strom"
        _run([strom, "up", "--help"], folder=folder)  # imports the embedded mode as a plugin
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Build into the folder of the command line; check unless ``--no-check``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write distributions and checksums")
    parser.add_argument("--no-check", action="store_true", help="do not install the wheels")
    chosen = parser.parse_args(arguments)
    folder = chosen.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        wheels = build(folder)
        print(f"{len(wheels)} wheels, their source distributions and {CHECKSUMS} in {folder}")
        if not chosen.no_check:
            print(check(wheels).splitlines()[0], "runs from the wheels")
    except subprocess.CalledProcessError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
