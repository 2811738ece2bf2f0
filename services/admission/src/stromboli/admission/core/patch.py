"""Defaults as JSON patch operations (RFC 6902), for a webhook's answer or to be applied here."""

import copy
from typing import Any

import msgspec

Document = dict[str, Any]
"""A JSON object as it was submitted. Only this module and the schema checks look inside one."""


class Add(msgspec.Struct, frozen=True, kw_only=True):
    """Set one member; the object that holds it exists already. ``path`` is a JSON pointer."""

    path: str
    value: Any
    op: str = "add"


def applied(document: Document, additions: tuple[Add, ...]) -> Document:
    """A copy of the document with the additions made, in order."""
    result = copy.deepcopy(document)
    for addition in additions:
        *parents, last = (
            part.replace("~1", "/").replace("~0", "~") for part in addition.path[1:].split("/")
        )
        holder: Any = result
        for part in parents:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        holder[last] = addition.value
    return result


def pointer(*parts: str | int) -> str:
    """A JSON pointer; a ``/`` or ``~`` inside a part is escaped."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
