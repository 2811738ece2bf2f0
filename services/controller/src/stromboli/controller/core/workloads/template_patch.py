"""Merges a flow's patch into its template's spec.

Objects are merged field by field and null removes a field, as in RFC 7396. Lists whose entries all
have names (tasks, containers, variables, volumes) are merged by name: an entry with an existing
name is merged into that entry, any other entry is added. Any other list is replaced.
"""

from typing import Any

Value = Any


def merged(value: Value, patch: Value) -> Value:
    """``value`` with ``patch`` applied; neither is changed."""
    if isinstance(patch, dict):
        result = dict(value) if isinstance(value, dict) else {}
        for name, part in patch.items():
            if part is None:
                result.pop(name, None)
            else:
                result[name] = merged(result.get(name), part)
        return result
    if _is_named(patch) and _is_named(value):
        changes = {entry["name"]: entry for entry in patch}
        known = {entry["name"] for entry in value}
        changed = [merged(entry, changes.get(entry["name"], {})) for entry in value]
        return changed + [merged(None, entry) for entry in patch if entry["name"] not in known]
    return patch


def _is_named(value: Value) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(entry, dict) and entry.get("name") for entry in value)
    )
