"""Fills in the defaults of the schema, as the API server does before it validates.

Follows "Defaulting and nullable" of the Kubernetes documentation: a null in a field is as good
as no field, and a default is filled in only where the object that holds the field is there (no
`spec` appears because something in it has a default).
"""

import copy
from collections.abc import Mapping
from typing import Any

import msgspec

from stromboli.shared.jobspec.crds import catalog


def apply_defaults(group: str, kind: str, document: Any) -> Any:
    """The document with nulls dropped and defaults filled in, as a new document of JSON values.

    What YAML has beyond JSON becomes what `kubectl` makes of it: times become text, and so do
    keys that are numbers. Idempotent. Raises ValueError for a kind that is not ours and
    TypeError for values that have no form in JSON.
    """
    schema = catalog.schema(group, kind)
    filled = msgspec.to_builtins(document, str_keys=True)
    _fill(filled, schema)
    metadata = filled.get("metadata") if isinstance(filled, dict) else None
    if isinstance(metadata, dict):  # it has no schema, and a null means nothing there either
        filled["metadata"] = {key: held for key, held in metadata.items() if held is not None}
    return filled


def _fill(value: Any, schema: Mapping[str, Any]) -> None:
    """Fills `value` in place, all the way down."""
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
            continue  # not ours to know: kept by a schema that keeps unknown fields, or refused
        if value[name] is None:
            del value[name]
        else:
            _fill(value[name], child)
    for name, child in properties.items():
        if "default" in child and name not in value:
            value[name] = copy.deepcopy(child["default"])
