"""Translates a definition's schema into JSON Schema, for validation by a fast library.

The translation adds rules that the API server has outside the schema: unknown fields, which it
would prune, are rejected (as in `kubectl`'s strict field validation), and metadata has a schema.
Keywords that our definitions do not use are not translated; a test checks this.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from stromboli.shared.jobspec.crds import catalog

_BOUNDS = ("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength")
SAME = ("title", "type", "enum", "required", "oneOf", "pattern", *_BOUNDS)
"""Keywords with the same meaning in both languages; `title` is kept for messages."""

_TEXT_MAP = {"type": "object", "additionalProperties": {"type": "string"}}

# The CRD's schema does not cover metadata, which the API server validates separately. This schema
# covers the fields of metadata that users write.
_METADATA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {
            "title": 'a name of lower case letters, digits, "-" and ".", 253 characters at most',
            "type": "string",
            "maxLength": 253,
            "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        },
        "generateName": {"type": "string"},
        "namespace": {
            "title": 'a name of lower case letters, digits and "-", 63 characters at most',
            "type": "string",
            "maxLength": 63,
            "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
        },
        "labels": {
            "type": "object",
            "additionalProperties": {
                "title": 'letters, digits, "-", "_" and ".", at most 63 characters',
                "type": "string",
                "maxLength": 63,
                "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
            },
        },
        "annotations": _TEXT_MAP,
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "ownerReferences": {"type": "array", "items": {"type": "object"}},
        # Set by the API server and part of every exported manifest.
        "uid": True,
        "resourceVersion": True,
        "generation": True,
        "selfLink": True,
        "creationTimestamp": True,
        "deletionTimestamp": True,
        "deletionGracePeriodSeconds": True,
        "managedFields": True,
    },
}


@functools.cache
def compiled(group: str, kind: str) -> tuple[Mapping[str, Any], jsonschema_rs.Validator]:
    """The translated schema of a kind (shared) and its validator. Raises ValueError for an unknown
    kind.
    """
    schema = _translate(catalog.schema(group, kind))
    schema["properties"] |= {
        "apiVersion": {"enum": [f"{group}/{catalog.version(group, kind)}"]},
        "kind": {"enum": [kind]},
        "metadata": _METADATA,
    }
    return schema, jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


def _translate(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema that rejects all values that the API server would reject or prune."""
    translated = {key: value for key, value in schema.items() if key in SAME}
    if schema.get("x-kubernetes-int-or-string"):
        translated["type"] = ["integer", "string"]
    if schema.get("format") == "date-time":
        translated["format"] = "date-time"
    if "items" in schema:
        translated["items"] = _translate(schema["items"])
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        translated["properties"] = {name: _translate(child) for name, child in properties.items()}
        translated["additionalProperties"] = _additional_properties(schema)
    return translated


def _additional_properties(schema: Mapping[str, Any]) -> Any:
    """The schema of members other than the named fields."""
    if "additionalProperties" in schema:
        return _translate(schema["additionalProperties"])
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))
