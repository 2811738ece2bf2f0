"""No committed file binds the project to one place: a registry's host, a machine, a tracker."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Each word is concatenated here so that this file does not contain it.
REGISTRIES = {
    "Python packages": ("pypi", ".org"),
    "Python files": ("files.python", "hosted.org"),
    "Go modules": ("proxy.go", "lang.org"),
    "Go checksums": ("sum.go", "lang.org"),
    "Maven Central": ("repo1.ma", "ven.org"),
    "Maven Central, its other name": ("repo.ma", "ven.apache.org"),
    "npm packages": ("registry.npm", "js.org"),
    "Rust crates": ("crates", ".io"),
    "Debian packages": ("deb.deb", "ian.org"),
}
PLACES = {
    "a folder of one machine": r"(?<![\w./-])/wo" + r"rk/",
    "a number in somebody's tracker": r"(?i)\biss" + r"ue #?\d+\b",
}
PATTERNS = {
    **{name: re.escape("".join(parts)) for name, parts in REGISTRIES.items()},
    **PLACES,
}


def committed_texts() -> list[tuple[str, str]]:
    """Name and text of every file git has or would take; binary files are left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    contents = [(name, (ROOT / name).read_bytes()) for name in names]
    return [(name, text.decode(errors="replace")) for name, text in contents if b"\0" not in text]


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    return committed_texts()


@pytest.mark.parametrize("name", PATTERNS)
def test_no_file_names(name: str, texts: list[tuple[str, str]]) -> None:
    """Settings of pip, Maven and Go decide where packages come from, not the repository."""
    pattern = re.compile(PATTERNS[name])
    found = [
        f"{file}:{number}"
        for file, text in texts
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a folder of one machine", "see /wo" + "rk/main/Makefile"),
        ("a number in somebody's tracker", "as Iss" + "ue 12 says"),
        ("Python packages", "https://py" + "pi.org/simple"),
    ],
)
def test_the_patterns_match_registries_and_machines(name: str, line: str) -> None:
    assert re.search(PATTERNS[name], line)


def test_a_path_with_only_the_same_end_is_accepted() -> None:
    assert not re.search(PATTERNS["a folder of one machine"], ".strom/wo" + "rk/broker")
