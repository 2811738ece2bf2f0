"""The layout: an open namespace, every member known to every tool, services laid out alike."""

import fnmatch
import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ("admission", "console", "controller", "history", "scheduler", "monitor")
# At 500 lines a module has found its second purpose.
LONGEST_MODULE = 500
# Beyond this a folder lacks a concept.
MOST_MODULES = 18


def tracked(suffix: str = "") -> list[Path]:
    """The files of the repository, also those not yet committed, that still exist."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = [ROOT / name for name in listed.split("\0") if name.endswith(suffix) and name]
    return [path for path in paths if path.is_file()]


def load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


WORKSPACE = load(ROOT / "pyproject.toml")
MEMBERS: list[str] = WORKSPACE["tool"]["uv"]["workspace"]["members"]


def package_of(member: str) -> str:
    """The import name that a member builds, such as `stromboli.shared`."""
    module: str = load(ROOT / member / "pyproject.toml")["tool"]["uv"]["build-backend"][
        "module-name"
    ]
    return module


def test_stromboli_is_an_open_namespace() -> None:
    """An `__init__.py` at that level would hide all packages but one."""
    assert [path for path in tracked("__init__.py") if path.parent.name == "stromboli"] == []


def test_every_project_is_a_member_of_the_workspace() -> None:
    projects = {path.parent.relative_to(ROOT).as_posix() for path in tracked("pyproject.toml")}
    assert projects - {"."} == set(MEMBERS)


@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_is_configured_in_the_tools(member: str) -> None:
    """Otherwise the linter, the type checker or the import contracts would pass it by."""
    tools = WORKSPACE["tool"]
    source = f"{member}/src"
    assert source in tools["mypy"]["mypy_path"]
    assert any(fnmatch.fnmatch(source, pattern) for pattern in tools["ruff"]["src"])
    assert package_of(member) in tools["importlinter"]["root_packages"]


@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_has_a_readme_and_ships_its_types(member: str) -> None:
    folder = ROOT / member
    assert (folder / "README.md").stat().st_size > 0
    package = folder / "src" / Path(*package_of(member).split("."))
    assert (package / "py.typed").is_file()
    assert load(folder / "pyproject.toml")["project"]["license"] == "Apache-2.0"


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_has_a_pure_core_and_a_thin_shell(service: str) -> None:
    """The import contracts refer to these names and apply only where they are used."""
    package = ROOT / "services" / service / "src" / "stromboli" / service
    assert (package / "core" / "__init__.py").is_file()
    for part in ("service.py", "settings.py", "__main__.py"):
        assert (package / part).is_file(), f"{service} has no {part}"
    assert list((ROOT / "services" / service / "tests").rglob("test_*.py"))


def test_no_module_exceeds_the_length_limit() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in tracked(".py")}
    too_long = {
        path.relative_to(ROOT).as_posix(): length
        for path, length in lengths.items()
        if length > LONGEST_MODULE
    }
    assert too_long == {}


def test_no_folder_of_product_code_has_more_modules_than_a_reader_can_scan() -> None:
    modules = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for path in tracked(".py")
        if "src" in path.parts and path.name != "__init__.py" and "tests" not in path.parts
    )
    assert {folder: count for folder, count in modules.items() if count > MOST_MODULES} == {}


def test_the_makefile_explains_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony is not None
    explained = re.findall(r"^([a-z0-9-]+):.*## ", text, re.MULTILINE)
    assert sorted(explained) == sorted(phony[1].split())


def test_every_path_in_the_makefile_exists() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    listed = re.search(r"^PROPERTIES := \$\(addprefix (\S+),(.*?)\)", makefile, re.MULTILINE)
    assert listed is not None
    named = [listed[1] + name for name in listed[2].split()]
    named += re.findall(r"(?<![\w./-])((?:tests|tools)/[\w./-]+)", makefile.replace(listed[0], ""))
    assert [name for name in named if not (ROOT / name).exists()] == []
