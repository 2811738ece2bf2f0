"""The cores are pure: the same input gives the same bytes, today, tomorrow and in replay.

The import contracts keep clients and the event loop out of every `core/`. This looks for what
they cannot see: calls that read a clock, chance, the environment or the process, and waiting.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORES = sorted(
    (
        *(ROOT / "services").glob("*/src/stromboli/*/core/**/*.py"),
        *(ROOT / "shared/src/stromboli/shared/jobspec/validation").glob("*.py"),
        *(ROOT / "embedded/src/stromboli/embedded/processes/core").glob("*.py"),
        *(ROOT / "embedded/src/stromboli/embedded/simulation/core").glob("*.py"),
        ROOT / "shared/src/stromboli/shared/data_cache/policy.py",
        ROOT / "shared/src/stromboli/shared/leader_election/lease_rules.py",
    )
)

# Whole modules, and single names of modules that are otherwise welcome.
IMPURE = (
    "time",
    "random",
    "secrets",
    "os",
    "uuid.uuid1",
    "uuid.uuid4",
    "numpy.random",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "sys.argv",
    "pathlib.Path.cwd",
    "pathlib.Path.home",
)
# Of the builtins: I/O, and what differs from one process to the next.
IMPURE_BUILTINS = ("open", "input", "print", "hash", "id", "globals", "exec", "eval")


def impurities(source: str) -> Iterator[str]:
    """`line: name` of everything in a module's source that a core must not do."""
    tree = ast.parse(source)
    names = imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"{node.lineno}: waits"
        elif isinstance(node, ast.Attribute | ast.Name):
            name = full_name(node, names)
            if any(name == impure or name.startswith(impure + ".") for impure in IMPURE):
                yield f"{node.lineno}: {name}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = node.func.id
            if called in IMPURE_BUILTINS and called not in names:
                yield f"{node.lineno}: {called}()"


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Local name -> full dotted name of everything that a module imports."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def full_name(node: ast.expr, names: dict[str, str]) -> str:
    """The dotted name of an expression, empty if it is not an imported name."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = full_name(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


@pytest.mark.parametrize("module", CORES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_core_reads_no_clock_chance_or_environment(module: Path) -> None:
    assert list(impurities(module.read_text())) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time\nnow = time.time()", ["2: time", "2: time.time"]),
        ("from time import monotonic as m\nm()", ["2: time.monotonic"]),
        ("import datetime as dt\ndt.datetime.now(dt.UTC)", ["2: datetime.datetime.now"]),
        ("from datetime import datetime\ndatetime.utcnow()", ["2: datetime.datetime.utcnow"]),
        ("import numpy as np\nnp.random.rand()", ["2: numpy.random", "2: numpy.random.rand"]),
        ("from uuid import uuid4\nuuid4()", ["2: uuid.uuid4"]),
        ("import os\nos.environ['HOME']", ["2: os", "2: os.environ"]),
        ("async def f(): pass", ["1: waits"]),
        ("hash('queue')", ["1: hash()"]),
        ("from datetime import datetime\ndatetime.fromisoformat('2024-01-01')", []),
        ("import uuid\nuuid.uuid5(uuid.NAMESPACE_URL, 'job')", []),
        ("class Clock:\n    def time(self): return self.now", []),
    ],
)
def test_the_search_finds_exactly_the_impure_calls(source: str, found: list[str]) -> None:
    assert sorted(impurities(source)) == sorted(found)
