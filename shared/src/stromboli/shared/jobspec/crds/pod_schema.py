"""Strict decoding of pod templates against the pod schema of Kubernetes.

The definitions preserve unknown fields of pod templates, and an API server drops unknown fields
when the pod is created. So a typo such as ``comand`` would go unnoticed. This module finds unknown
fields and values of the wrong JSON type with the table ``pod_schema.json``, which ``python -m
tools.pod_schema`` generates from the Kubernetes client's models.

Kubernetes never changes the type of a field, so a wrong type is always an error. A field that the
table lacks may come from a Kubernetes version newer than the table: the caller decides between an
error and a warning.
"""

import functools
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stromboli.shared.jobspec.crds import schema_validation
from stromboli.shared.messages.admission import Violation

FILE = pathlib.Path(__file__).with_name("pod_schema.json")
TEMPLATE, POD_SPEC, CLAIM_SPEC = "V1PodTemplateSpec", "V1PodSpec", "V1PersistentVolumeClaimSpec"
_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
}


class _Finding(NamedTuple):
    violation: Violation
    is_unknown_field: bool


def unknown_fields(document: Mapping[str, Any]) -> Iterator[Violation]:
    """A violation for each field that Kubernetes does not have, in the pod templates and volume
    claims of a Job, JobTemplate, CronJob or JobFlow. It suggests the field that was probably meant.
    O(values)."""
    for path, type_name, value in _parts(document):
        for finding in _walk(value, type_name, path):
            if finding.is_unknown_field:
                yield finding.violation


def type_errors(value: Any, type_name: str, path: str) -> Iterator[Violation]:
    """A violation for each value below ``path`` whose JSON type is not the one that Kubernetes
    decodes."""
    for finding in _walk(value, type_name, path):
        if not finding.is_unknown_field:
            yield finding.violation


def _parts(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(path, type, value) of each part of a document that has a type of Kubernetes."""
    for path, spec in _job_specs(document):
        for index, task in enumerate(_list(spec.get("tasks"))):
            if isinstance(task, dict) and "template" in task:
                yield f"{path}.tasks[{index}].template", TEMPLATE, task["template"]
        for index, volume in enumerate(_list(spec.get("volumes"))):
            if isinstance(volume, dict) and "volumeClaim" in volume:
                yield f"{path}.volumes[{index}].volumeClaim", CLAIM_SPEC, volume["volumeClaim"]


def _job_specs(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The job specs of a document: of a Job or JobTemplate, in a CronJob's template, or in a
    JobFlow's patches."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return
    yield "spec", spec
    template = spec.get("jobTemplate")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        yield "spec.jobTemplate.spec", template["spec"]
    for index, flow in enumerate(_list(spec.get("flows"))):
        patch = flow.get("patch") if isinstance(flow, dict) else None
        if isinstance(patch, dict) and isinstance(patch.get("jobSpec"), dict):
            yield f"spec.flows[{index}].patch.jobSpec", patch["jobSpec"]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _walk(value: Any, type_name: str, path: str) -> Iterator[_Finding]:
    """Findings below a value of a type of the table; ``[]`` and ``{}`` before the type name mean a
    list or a map of the type, an empty name any value. Null counts as absent, as in the API
    server."""
    if value is None or not type_name:
        return
    if type_name.startswith("[]"):
        if not isinstance(value, list):
            yield _wrong_type(path, value, "array")
            return
        for index, item in enumerate(value):
            yield from _walk(item, type_name[2:], f"{path}[{index}]")
    elif type_name.startswith("{}"):
        if not isinstance(value, dict):
            yield _wrong_type(path, value, "object")
            return
        for key, item in value.items():
            yield from _walk(item, type_name[2:], schema_validation.join_path(path, key))
    elif (expected := _JSON_TYPES.get(type_name)) is not None:
        if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
            yield _wrong_type(path, value, type_name)
    elif not isinstance(value, dict):
        yield _wrong_type(path, value, "object")
    else:
        fields = _table()[type_name]
        for name, item in value.items():
            at = schema_validation.join_path(path, name)
            if name in fields:
                yield from _walk(item, fields[name], at)
            else:
                meant = schema_validation.suggested_field(name[:100], list(fields))
                violation = Violation(path=at, reason="unknown field", expected=meant)
                yield _Finding(violation, is_unknown_field=True)


def _wrong_type(path: str, value: Any, json_type: str) -> _Finding:
    # The value itself may be a secret, such as a password of digits, and violations are recorded.
    reason = f"is {schema_validation.type_name(value)}"
    expected = f"expected {schema_validation.TYPES[json_type]}"
    return _Finding(Violation(path=path, reason=reason, expected=expected), is_unknown_field=False)


@functools.cache
def _table() -> Mapping[str, Mapping[str, str]]:
    """Type name -> JSON field -> type of the field."""
    field_types: dict[str, dict[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return field_types
