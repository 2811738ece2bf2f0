"""Applies the defaults of the schema, as the API server does before validation.

Follows "Defaulting and nullable" of the Kubernetes documentation: a null in a field counts as an
absent field, and a default is applied only where the parent object exists (a default in `spec` does
not create `spec`).
"""

import copy
from collections.abc import Mapping
from typing import Any

import msgspec

from stromboli.shared.jobspec.crds import catalog


def apply_defaults(group: str, kind: str, document: Any) -> Any:
    """A new document of JSON values, with nulls removed and defaults applied.

    YAML values that JSON does not have are converted as `kubectl` converts them: times and numeric
    keys become text. Idempotent. Raises ValueError for an unknown kind and TypeError for values
    that JSON cannot represent.
    """
    schema = catalog.schema(group, kind)
    filled = msgspec.to_builtins(document, str_keys=True)
    _fill(filled, schema)
    metadata = filled.get("metadata") if isinstance(filled, dict) else None
    if isinstance(metadata, dict):  # metadata has no schema; nulls are removed there, too
        filled["metadata"] = {key: held for key, held in metadata.items() if held is not None}
    return filled


def _fill(value: Any, schema: Mapping[str, Any]) -> None:
    """Apply defaults to `value` in place, recursively."""
    if isinstance(value, dict):
        _fill_object(value, schema)
    elif isinstance(value, list) and "items" in schema:
        for item in value:
            _fill(item, schema["items"])


def _fill_object(value: dict[str, Any], schema: Mapping[str, Any]) -> None:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for name in list(value):
        child = properties.get(name, others)
        if child is None:
            continue  # unknown: kept if the schema preserves unknown fields, else rejected
        if value[name] is None:
            del value[name]
        else:
            _fill(value[name], child)
    for name, child in properties.items():
        if "default" in child and name not in value:
            value[name] = copy.deepcopy(child["default"])
