"""Docstrings describe fields and parameters that exist: ``name``: what it means."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESCRIBED = re.compile(r"``([a-z_]\w*)``(?:, ``([a-z_]\w*)``)*:")
SOURCES = (
    "shared/src",
    "services",
    "cli/src",
    "extras",
    "client/src",
    "embedded/src",
    "tests/kit/src",
)


def sources() -> list[Path]:
    """The committed modules of the product and the test kit."""
    command = ["git", "ls-files", "-z", *(f"{folder}/**/*.py" for folder in SOURCES)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if "/src/" in name]
    return [path for path in paths if path.is_file()]


def code_words(tree: ast.AST) -> Iterator[str]:
    """Every name and every word of a string in a module's code, docstrings left out."""
    texts = {id(it.value) for it in ast.walk(tree) if isinstance(it, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word):
                yield word
            case ast.keyword(arg=str(word)):
                yield word
            case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word):
                yield word
            case ast.ClassDef(name=word):
                yield word
            case ast.alias(name=name, asname=alias):
                yield alias or name
            case ast.Constant(value=str(text)) if id(node) not in texts:
                yield from re.findall(r"\w+", text)


def unknown_names(source: str) -> list[str]:
    """Names that a docstring of the source describes and that do not occur in its code."""
    if not DESCRIBED.search(source):
        return []  # parsing all files takes longest
    tree = ast.parse(source)
    documented = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [
        ast.get_docstring(it) or "" for it in ast.walk(tree) if isinstance(it, documented)
    ]
    names = {name for text in docstrings for found in DESCRIBED.findall(text) for name in found}
    return sorted(names - {""} - set(code_words(tree)))


def test_docstrings_describe_only_names_that_exist() -> None:
    found = [
        f"{path.relative_to(ROOT)}: ``{name}``:"
        for path in sources()
        for name in unknown_names(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('def f(size):\n    """``size``: in bytes; ``lenght``: in lines."""', ["lenght"]),
        ('class A:\n    """``kind``: ``new`` or ``old``."""\n    kind: str', []),
        ('"""Action ``reclaim``: evicts."""\n', []),
        ('def f():\n    """``old``: of before."""\n    return "old"', []),
    ],
)
def test_a_described_name_that_is_nowhere_in_the_code_is_found(
    source: str, expected: list[str]
) -> None:
    assert unknown_names(source) == expected
