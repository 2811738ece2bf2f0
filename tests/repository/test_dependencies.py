"""What we depend on: each with its reason, locked with hashes, and none where it must not be."""

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
WORKSPACE = tomllib.loads((ROOT / "pyproject.toml").read_text())
MEMBERS: list[str] = WORKSPACE["tool"]["uv"]["workspace"]["members"]
PROJECTS = [ROOT / "pyproject.toml", *(ROOT / member / "pyproject.toml" for member in MEMBERS)]


LOCKS = (
    "requirements.txt",
    "requirements-real.txt",
    "tools/uv.txt",
    "tools/real/debug_tools.txt",
    "tools/real/code_server.txt",
    "tools/real/spark.txt",
    "integrations/requirements.txt",
)


def third_party(project: Path) -> Iterator[tuple[str, str]]:
    """(group, requirement) for everything that a pyproject.toml takes from outside."""
    content = tomllib.loads(project.read_text())
    tables = {
        "dependencies": {"": content["project"].get("dependencies", [])},
        "extras": content["project"].get("optional-dependencies", {}),
        "groups": content.get("dependency-groups", {}),
    }
    for groups in tables.values():
        for group, requirements in groups.items():
            for requirement in requirements:
                if not requirement.startswith("stromboli-"):
                    yield group, requirement


def pins(lock: str) -> dict[str, str]:
    """Name -> version of every package in a lock file."""
    text = (ROOT / lock).read_text()
    found = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def lock_of(project: Path, group: str) -> str:
    if project.is_relative_to(ROOT / "integrations"):
        return "integrations/requirements.txt"
    return {
        "real": "requirements-real.txt",
        "bootstrap": "tools/uv.txt",
        "debug-tools": "tools/real/debug_tools.txt",
        "code-server": "tools/real/code_server.txt",
        "spark": "tools/real/spark.txt",
    }.get(group, "requirements.txt")


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name)
def test_every_dependency_has_a_comment_with_its_reason(project: Path) -> None:
    lines = project.read_text().splitlines()
    for _, requirement in third_party(project):
        line = next(line for line in lines if f'"{requirement}"' in line)
        comment = line.partition("#")[2].split()
        assert len(comment) >= 2, f"{project.relative_to(ROOT)}: why {requirement}?"


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name)
def test_the_lock_holds_every_dependency_within_its_bounds(project: Path) -> None:
    """Otherwise `make lock` was forgotten."""
    for group, text in third_party(project):
        requirement = Requirement(text)
        lock = lock_of(project, group)
        locked = pins(lock)
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{text} is not in {lock}: run make lock"
        assert requirement.specifier.contains(version, prereleases=True), f"{text}: {version}"


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_has_hashes_and_names_no_registry(lock: str) -> None:
    text = (ROOT / lock).read_text()
    entries = re.split(r"\n(?=[A-Za-z0-9])", text.strip())
    assert entries
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in text


def test_integrations_are_tested_with_the_versions_of_the_services() -> None:
    """Their environment has both locks."""
    main, engines = pins("requirements.txt"), pins("integrations/requirements.txt")
    assert {name: (main[name], engines[name]) for name in main.keys() & engines.keys()} == {
        name: (main[name], main[name]) for name in main.keys() & engines.keys()
    }


def test_there_is_one_lock() -> None:
    assert not (ROOT / "uv.lock").exists()


def required_by(distribution: str) -> set[str]:
    """Every distribution that installing this one requires, through its extras."""
    seen: set[tuple[str, str]] = set()
    waiting = [(distribution, "")]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            listed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # for another platform: the lock's markers left it out here
        for requirement in map(Requirement, listed):
            marker = requirement.marker
            if marker is None or marker.evaluate({"extra": extra}):
                child = canonicalize_name(requirement.name)
                waiting += [(child, "")] + [(child, wanted) for wanted in requirement.extras]
    return {name for name, _ in seen}


def test_the_schedulers_distribution_brings_no_kubernetes_client() -> None:
    """It is bus to bus: its image cannot talk to a cluster even by mistake."""
    assert "kubernetes-asyncio" not in required_by("stromboli-scheduler")


def test_the_walk_over_distributions_includes_extras() -> None:
    """The controller does have the client, through an extra of shared."""
    assert "kubernetes-asyncio" in required_by("stromboli-controller")
