"""Names use the terms of Kubernetes, Kafka and Volcano, not private metaphors.

A reader searches for standard terms. These words were used for concepts that have a standard name;
each entry of the table contains that name. Words with a legitimate technical meaning are not in the
table.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REPLACEMENTS = {
    "abreast": "caught up",
    "anew": "again",
    "anybody": "a user, a client",
    "asker": "principal",
    "census": "index",
    "desk": "consumer",
    "disorder": "fault injection",
    "disordered": "with fault injection",
    "door": "admission",
    "furnish": "set up",
    "happening": "event",
    "happenings": "events",
    "heard": "received, accepted",
    "hears": "receives",
    "ladder": "batch",
    "lanes": "work queue",
    "nearness": "topology constraint",
    "nobody": "no client, no service",
    "parking": "unschedulable",
    "picture": "cache, snapshot",
    "pictures": "diagrams, images",
    "rooms": "packages",
    "somebody": "another client",
    "stray": "unmanaged",
    "strays": "unmanaged pods",
    "told": "notified, reported",
    "untold": "not published",
    "vouch": "mark as synced",
    "vouched": "marked as synced",
    "vouches": "marks as synced",
    "whoever": "the leader, the owner, any client",
    "wish": "request, requirement",
    "wishes": "requests, requirements",
}
"""Word -> what is written instead."""
PENDING = {
    "cli": 70,
    "client": 10,
    "embedded": 70,
    "services/admission": 60,
    "services/controller": 190,
    "services/monitor": 50,
    "services/scheduler": 220,
    "shared": 70,
}
"""Folder -> how many of its names may still contain a replaced word; all others are free of them.

A ceiling that only ever falls: lower it with the names you change.
"""
EXCEPTIONS: dict[str, str] = {}
"""Name -> why it may keep the word; at most 15."""
MOST_EXCEPTIONS = 15


def sources() -> list[Path]:
    """The committed Python files and those that git would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every definition, parameter, variable and field in a module."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def words(name: str) -> set[str]:
    """The words of a name in snake case or camel case, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def offences(path: Path) -> Iterator[str]:
    """A line for every name of a file that contains a replaced word."""
    where = path.relative_to(ROOT).as_posix()
    for line, name in ((1, path.stem), *names(ast.parse(path.read_text()))):
        if name not in EXCEPTIONS:
            for word in sorted(words(name) & set(REPLACEMENTS)):
                yield f"{where}:{line}: {name}: instead of {word!r} write {REPLACEMENTS[word]}"


def test_no_name_contains_a_replaced_word() -> None:
    found: dict[str, list[str]] = {}
    for path in sources():
        first, second, *_ = (*path.relative_to(ROOT).parts, "")
        folder = first if first in PENDING else f"{first}/{second}"
        found.setdefault(folder, []).extend(offences(path))
    over = [
        line
        for folder, lines in found.items()
        if len(lines) > PENDING.get(folder, 0)
        for line in lines
    ]
    assert not over, "\n".join(over)


def test_there_are_few_exceptions() -> None:
    assert len(EXCEPTIONS) <= MOST_EXCEPTIONS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("is_told", {"is", "told"}),
        ("ToldByWatch", {"told", "by", "watch"}),
        ("HTTPDoor", {"http", "door"}),
        ("MOST_PARKED", {"most", "parked"}),
        ("untold2", {"untold"}),
        ("fulltoldword", {"fulltoldword"}),
    ],
)
def test_a_name_is_split_into_words(name: str, expected: set[str]) -> None:
    assert words(name) == expected
