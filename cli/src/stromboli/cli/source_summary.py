"""The help of a command from the source of its module, without an import of the module."""

import ast
import importlib.util
from pathlib import Path


def summary(module: str, name: str) -> str:
    """The docstring of a function, or the ``help`` of a Typer app; empty if neither is found."""
    try:
        spec = importlib.util.find_spec(module)
        source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        texts = [_summary_of(node, name) for node in ast.parse(source).body]
    except (ImportError, OSError, SyntaxError, UnicodeDecodeError):
        return ""
    return next((text for text in texts if text), "")


def _summary_of(node: ast.stmt, name: str) -> str | None:
    match node:
        case ast.FunctionDef(name=state) if state == name:
            return ast.get_docstring(node)
        case ast.Assign(targets=[ast.Name(id=state)], value=ast.Call(keywords=keywords)) if (
            state == name
        ):
            values = [each.value for each in keywords if each.arg == "help"]
            return next(
                (str(each.value) for each in values if isinstance(each, ast.Constant)), None
            )
    return None
