"""Generates the page about objects from the custom resource definitions."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tools.docs import markdown

Document = dict[str, Any]
_ELSEWHERE = {
    "template": "Kubernetes' PodTemplateSpec",
    "volumeClaim": "Kubernetes' PersistentVolumeClaimSpec",
    "jobSpec": "what differs from the template's `spec`",
}
"""Fields whose types are not described on this page -> the text shown instead."""
_JOBS = {"CronJob": "spec.jobTemplate.spec", "JobTemplate": "spec"}
"""Kind -> path of the Job spec that it contains."""


def lines(definitions: Mapping[str, Document]) -> Iterator[str]:
    """The page's lines: each kind with all its fields. ``definitions``: kind ->
    CustomResourceDefinition."""
    for kind, definition in sorted(definitions.items()):
        spec = definition["spec"]
        version = spec["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        yield f"## {kind}"
        yield ""
        yield f"`{spec['group']}/{version['name']}`, {spec['scope'].lower()}. " + schema.get(
            "description", ""
        )
        yield ""
        yield from markdown.table(
            ("field", "type", "default", ""),
            (
                row
                for part, inner in schema["properties"].items()
                if part not in ("apiVersion", "kind", "metadata")
                for row in _rows(kind, part, inner)
            ),
        )
        yield ""


def _rows(kind: str, path: str, schema: Document) -> Iterator[tuple[str, ...]]:
    whole_job = _JOBS.get(kind, "")
    rows = [_row(path, schema)] if path not in ("spec", "status") or path == whole_job else []
    for place, *rest in (*rows, *fields(schema, path)):
        if place == f"`{whole_job}`":
            yield place, "[a Job's spec](#job)", *rest[1:]
        elif not whole_job or not place.startswith(f"`{whole_job}."):
            yield place, *rest


def fields(schema: Document, path: str) -> Iterator[tuple[str, ...]]:
    """A row for each field below a path, such as ``spec.tasks[].replicas``."""
    inner, suffix = _inside(schema)
    for name, part in inner.get("properties", {}).items():
        here = f"{path}{suffix}.{name}"
        yield _row(here, part)
        if name not in _ELSEWHERE:
            yield from fields(part, here)


def _row(path: str, schema: Document) -> tuple[str, ...]:
    name = path.rpartition(".")[2]
    default = schema.get("default")
    return (
        markdown.code(path),
        _ELSEWHERE.get(name) or markdown.kind(schema),
        "" if default in (None, "", [], {}) else markdown.code(json.dumps(default).strip('"')),
        schema.get("description", ""),
    )


def _inside(schema: Document) -> tuple[Document, str]:
    if isinstance(schema.get("items"), dict):
        inner, suffix = _inside(schema["items"])
        return inner, "[]" + suffix
    if isinstance(schema.get("additionalProperties"), dict) and schema["additionalProperties"]:
        inner, suffix = _inside(schema["additionalProperties"])
        return inner, ".*" + suffix
    return schema, ""
