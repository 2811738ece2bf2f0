"""Wheels contain what a user runs: every module, its types, its data and its commands."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tools import dist


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return dist.build(tmp_path_factory.mktemp("dist"))


def test_every_package_has_a_wheel_with_all_its_files(wheels: list[Path]) -> None:
    """Built from the source distribution, so a file that is missing there is missing here."""
    assert len(wheels) == len(dist.packages(dist.ROOT))
    packed = {name for wheel in wheels for name in zipfile.ZipFile(wheel).namelist()}
    sources = {
        path.relative_to(dist.ROOT / member / "src").as_posix()
        for member in dist.packages(dist.ROOT)
        for path in (dist.ROOT / member / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sorted(sources - packed) == []


def test_the_command_line_of_a_wheel_runs_without_the_repository(
    wheels: list[Path], tmp_path: Path
) -> None:
    """``make dist`` also installs the dependencies, for which it needs a package index."""
    uv = dist.ROOT / ".venv/bin/uv"
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--no-deps", "--offline", "--target", tmp_path, *wheels],
        check=True,
    )
    main = "import stromboli.cli.main as m; print(m.__file__); m.main()"
    printed = subprocess.run(
        [sys.executable, "-c", main, "version", "--server", "http://127.0.0.1:1"],
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    version = tomllib.loads((dist.ROOT / "cli/pyproject.toml").read_text())["project"]["version"]
    assert Path(printed[0]).is_relative_to(tmp_path)
    assert printed[1].startswith(f"strom {version} ")
