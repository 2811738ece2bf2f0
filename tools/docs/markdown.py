"""Helpers that write the Markdown of generated pages."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Document = dict[str, Any]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table; none without rows."""
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    if lines:
        yield f"| {' | '.join(head)} |"
        yield "|" + "---|" * len(head)
        yield from lines


def cell(text: str) -> str:
    """The text as a table cell: in one line, with bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """The text as code; empty for an empty text."""
    return f"`{text}`" if str(text) else ""


def kind(schema: Document) -> str:
    """A JSON schema's type as a short text, such as ``list of string`` or ``integer or string``."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return reference.rpartition("/")[2]
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        return " or ".join(dict.fromkeys(kind(option) for option in options))
    values = schema.get("enum")
    if isinstance(values, list):
        return "one of " + ", ".join(f"`{value}`" if value else "nothing" for value in values)
    if "const" in schema:
        return f"`{schema['const']}`"
    items = schema.get("items")
    if schema.get("type") == "array" and isinstance(items, dict):
        return f"list of {kind(items)}"
    inner = schema.get("additionalProperties")
    if schema.get("type") == "object" and isinstance(inner, dict) and inner:
        return f"map to {kind(inner)}"
    named = schema.get("type", "anything")
    return "integer or string" if schema.get("x-kubernetes-int-or-string") else str(named)
