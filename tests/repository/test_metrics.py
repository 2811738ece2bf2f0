"""Every instrument in the code has its line in docs/metrics.md, under the name that is scraped."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/metrics.md").read_text()


def instruments() -> Iterator[tuple[str, str]]:
    """(kind, name) of every instrument whose name is a literal where it is created."""
    for path in ROOT.glob("services/*/src/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr.startswith("create_")
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and str(node.args[0].value).startswith("stromboli.")
            ):
                name = str(node.args[0].value).replace(".", "_")
                units = [it.value for it in node.keywords if it.arg == "unit"]
                if any(isinstance(unit, ast.Constant) and unit.value == "s" for unit in units):
                    name += "_seconds"
                yield node.func.attr.removeprefix("create_"), name


def test_every_instrument_is_on_the_page() -> None:
    found = list(instruments())
    assert len(found) > 5
    missing = [
        name
        for kind, name in found
        if f"`{name}{'_total' if kind == 'counter' else ''}`" not in PAGE
    ]
    assert missing == []
