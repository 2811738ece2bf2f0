"""Generates the page about the REST API from docs/openapi.json."""

import json
from collections.abc import Iterator
from typing import Any

from tools.docs import markdown, topics

METHODS = ("get", "post", "put", "patch", "delete")
Document = dict[str, Any]


def lines(description: Document) -> Iterator[str]:
    """The page's lines: every request with its parameters and an example of its body, then the
    types of bodies."""
    calls = [
        (path, method, call)
        for path, methods in description["paths"].items()
        for method, call in methods.items()
        if method in METHODS
    ]
    yield "## All requests"
    yield ""
    yield from markdown.table(
        ("", "path", ""),
        ((method.upper(), markdown.code(path), call["summary"]) for path, method, call in calls),
    )
    for path, method, call in calls:
        yield ""
        yield f"### {method.upper()} {path}"
        yield ""
        yield f"{call['summary']}."
        if call.get("description"):
            yield ""
            yield call["description"]
        yield ""
        yield from markdown.table(
            ("parameter", "in", "type", ""), map(_parameter, call.get("parameters", ()))
        )
        yield ""
        yield from _body(call)
    yield ""
    yield "## Types in requests and responses"
    schemas = description["components"]["schemas"]
    for name, schema in schemas.items():
        yield ""
        yield f"### {name}"
        yield ""
        if schema.get("description"):
            yield markdown.cell(schema["description"])
            yield ""
        yield from topics.fields(schema, schemas)


def _parameter(parameter: Document) -> tuple[str, ...]:
    needed = ", required" if parameter.get("required") else ""
    return (
        markdown.code(parameter["name"]),
        parameter["in"] + needed,
        markdown.kind(parameter.get("schema", {})),
        parameter.get("description", ""),
    )


def _body(call: Document) -> Iterator[str]:
    for media, content in call.get("requestBody", {}).get("content", {}).items():
        yield f"Body, `{media}`: {markdown.kind(content.get('schema', {}))}."
        yield ""
        if "example" in content:
            yield "```json"
            yield json.dumps(content["example"], indent=2)
            yield "```"
