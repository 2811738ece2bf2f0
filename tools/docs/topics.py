"""Generates the page about topics from docs/asyncapi.yaml."""

import json
from collections.abc import Iterator
from typing import Any

from tools.docs import markdown

DAY_MS = 86_400_000
Document = dict[str, Any]


def lines(description: Document) -> Iterator[str]:
    """The page's lines: a table of topics, and each message with its fields."""
    yield "## All topics"
    yield ""
    yield from markdown.table(
        ("topic", "key", "kept", "writer", "stable", "messages"),
        (_row(name, channel) for name, channel in description["channels"].items()),
    )
    yield ""
    yield "## Messages"
    schemas = description["components"]["schemas"]
    for name, message in description["components"]["messages"].items():
        yield ""
        yield f"### {name}"
        yield ""
        if "name" in message:
            yield f"`{message['name']}`"
            yield ""
        if "summary" in message:
            yield markdown.cell(message["summary"]).rstrip(".") + "."
            yield ""
        yield from fields(_resolved(message.get("payload", {}), schemas), schemas)
    yield ""
    yield "## Types in messages"
    used = {reference for each in schemas.values() for reference in _references(each)}
    payloads = {
        message.get("payload", {}).get("$ref", "").rpartition("/")[2]
        for message in description["components"]["messages"].values()
    }
    for name in sorted((used - payloads) & schemas.keys()):
        yield ""
        yield f"### {name}"
        yield ""
        if "description" in schemas[name]:
            yield markdown.cell(schemas[name]["description"])
            yield ""
        yield from fields(schemas[name], schemas)


def fields(schema: Document, schemas: Document) -> Iterator[str]:
    """The fields of an object; for any other type, its name."""
    properties = schema.get("properties")
    if not properties:
        yield markdown.kind(schema)
        return
    required = set(schema.get("required", ()))
    yield from markdown.table(
        ("field", "type", "default", ""),
        (
            (
                markdown.code(name),
                markdown.kind(part),
                "required" if name in required else _default(part),
                part.get("description", ""),
            )
            for name, part in properties.items()
        ),
    )


def _row(name: str, channel: Document) -> tuple[str, ...]:
    configuration = channel["bindings"]["kafka"]["topicConfiguration"]
    if "compact" in configuration["cleanup.policy"]:
        kept = "the newest record of each key"
    else:
        kept = f"{configuration['retention.ms'] / DAY_MS:g} days"
    return (
        markdown.code(name),
        channel.get("x-key", ""),
        kept,
        channel.get("x-writer", "") or "all",
        "yes" if channel.get("x-stability") == "stable" else "",
        ", ".join(f"[{each}](#{each.lower()})" for each in channel["messages"]),
    )


def _resolved(schema: Document, schemas: Document) -> Document:
    reference = schema.get("$ref", "")
    found: Document = schemas[reference.rpartition("/")[2]] if reference else schema
    return found


def _references(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if isinstance(tree.get("$ref"), str):
            yield tree["$ref"].rpartition("/")[2]
        for value in tree.values():
            yield from _references(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _references(value)


def _default(schema: Document) -> str:
    value = schema.get("default")
    return "" if value in (None, "", [], {}) else markdown.code(json.dumps(value).strip('"'))
