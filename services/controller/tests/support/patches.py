"""Patches as an API server applies them."""

from typing import Any

import msgspec

Body = dict[str, Any]


def copied(body: Body) -> Body:
    """A deep copy of a JSON object, ten times as fast as ``copy.deepcopy``."""
    result: Body = msgspec.to_builtins(body)
    return result


def merged(found: Any, patch: Any) -> Any:
    """A JSON merge patch, applied."""
    if not isinstance(patch, dict):
        return patch
    whole = dict(found) if isinstance(found, dict) else {}
    for name, value in patch.items():
        if value is None:
            whole.pop(name, None)
        else:
            whole[name] = merged(whole.get(name), value)
    return whole


def json_patch(found: Body, operations: list[Body]) -> Body:
    """RFC 6902 with test, add, remove and replace. Raises KeyError, IndexError or ValueError."""
    changed = copied(found)
    for operation in operations:
        parts = operation["path"].lstrip("/").split("/")
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in parts)
        place: Any = changed
        for part in path:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if isinstance(place, list):
            _patch_list(place, last, operation)
        elif operation["op"] == "add":
            place[last] = operation["value"]
        elif operation["op"] == "remove":
            del place[last]
        elif operation["op"] == "replace":
            place[last]
            place[last] = operation["value"]
        elif place[last] != operation["value"]:
            raise ValueError(operation["path"])
    return changed


def _patch_list(place: list[Any], last: str, operation: Body) -> None:
    if operation["op"] == "add" and last == "-":
        place.append(operation["value"])
    elif operation["op"] == "replace":
        place[int(last)] = operation["value"]
    else:
        raise ValueError(operation["path"])


def generation_of(body: Body, before: Body | None) -> int:
    """The generation as an API server counts it: each change of the spec is one."""
    if before is None or before["metadata"]["uid"] != body["metadata"]["uid"]:
        return 1
    is_changed = bool(before.get("spec") != body.get("spec"))
    return int(before["metadata"]["generation"]) + is_changed
