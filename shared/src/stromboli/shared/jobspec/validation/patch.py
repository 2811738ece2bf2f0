"""JSON patch operations (RFC 6902) that set defaults, for a webhook's response or to apply in this
process."""

import copy
from typing import Any

import msgspec

Document = dict[str, Any]
"""A JSON object as submitted. Only this module and the schema checks access its members."""
MAX_DEPTH = 100
"""Maximum depth of nested objects and lists: several times the depth of a pod template, and a tenth
of Python's recursion limit.
"""


class Add(msgspec.Struct, frozen=True, kw_only=True):
    """Set one member, whose parent object exists already. ``path`` is a JSON pointer."""

    path: str
    value: Any
    op: str = "add"


def applied(document: Document, additions: tuple[Add, ...]) -> Document:
    """A copy of the document with the additions applied in order."""
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


def merged(before: Document, wanted: Document) -> Document:
    """``before`` updated with ``wanted``: labels and annotations are added, and all other parts of
    ``wanted`` replace those of ``before``. System fields (uid, status ...) are kept. Labels and
    annotations that are not objects are copied unchanged, for validation to reject.
    """
    result = copy.deepcopy(before)
    for name, value in wanted.items():
        if name == "metadata":
            for part in ("labels", "annotations"):
                if value.get(part):
                    result["metadata"][part] = _over(before["metadata"].get(part), value[part])
        elif name != "status":
            result[name] = _over(before.get(name), value)
    return result


def _over(before: Any, wanted: Any) -> Any:
    """``before`` with ``wanted`` merged into it: objects member by member, so that admission's
    defaults are kept, and lists of the same length item by item. Other values are replaced by
    ``wanted``.
    """
    if isinstance(before, dict) and isinstance(wanted, dict):
        return {
            **before,
            **{name: _over(before.get(name), value) for name, value in wanted.items()},
        }
    if isinstance(before, list) and isinstance(wanted, list) and len(before) == len(wanted):
        return [_over(old, new) for old, new in zip(before, wanted, strict=True)]
    return copy.deepcopy(wanted)


def text_of(document: Document, name: str) -> str:
    """A text field of the metadata; empty if it is absent or not a string, since the document may
    be invalid.
    """
    metadata = document.get("metadata")
    value = metadata.get(name) if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else ""


def is_too_deep(value: Any) -> bool:
    """Whether objects and lists are nested deeper than ``MAX_DEPTH``. Costs 60 ns per member,
    without recursion.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def encoded(document: Document) -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document)
