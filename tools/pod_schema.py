"""Generates the field table of pod templates from the Kubernetes client's models.

    python -m tools.pod_schema [--check]

The models of ``kubernetes_asyncio`` are generated from the OpenAPI of Kubernetes. An upgrade of the
library brings the fields of newer Kubernetes versions. With ``--check`` nothing is written, and the
exit status is 1 if ``shared/jobspec/crds/pod_schema.json`` is out of date.
"""

import json
import re
import sys
from typing import Any

from kubernetes_asyncio import client

from stromboli.shared.jobspec.crds import pod_schema

ROOTS = ("V1PodTemplateSpec", "V1PersistentVolumeClaimSpec")
QUANTITIES = {
    ("V1EmptyDirVolumeSource", "sizeLimit"),
    ("V1ResourceFieldSelector", "divisor"),
    ("V1ResourceRequirements", "limits"),
    ("V1ResourceRequirements", "requests"),
    ("V1VolumeResourceRequirements", "limits"),
    ("V1VolumeResourceRequirements", "requests"),
    ("V1PodSpec", "overhead"),
}
"""Fields that may be a string or a number; in the client's models they are strings."""
_SCALARS = {"str": "string", "datetime": "string", "int": "integer", "bool": "boolean"}
"""Python type in the client's models -> JSON type. Other types without a model allow any value."""


def table() -> dict[str, dict[str, str]]:
    """Type name -> JSON field -> field type, for all types reachable from ``ROOTS``."""
    found: dict[str, dict[str, str]] = {}
    pending = list(ROOTS)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        model: Any = getattr(client, name)
        found[name] = {}
        for attribute, python_type in model.openapi_types.items():
            field = model.attribute_map[attribute]
            is_quantity = (name, field) in QUANTITIES
            container, inner = _container(python_type)
            if hasattr(client, inner):
                found[name][field] = container + inner
                pending.append(inner)
            else:
                found[name][field] = container + ("" if is_quantity else _SCALARS.get(inner, ""))
    return {name: found[name] for name in sorted(found)}


def text() -> str:
    """The content of the file: one line per type."""
    lines = (f"  {json.dumps(name)}: {json.dumps(fields)}" for name, fields in table().items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _container(python_type: str) -> tuple[str, str]:
    """``list[V1Volume]`` -> (``[]``, ``V1Volume``); maps have ``{}``, other types nothing."""
    if match := re.fullmatch(r"list\[(.*)\]", python_type):
        return "[]", match[1]
    if match := re.fullmatch(r"dict\(str, (.*)\)", python_type):
        return "{}", match[1]
    return "", python_type


if __name__ == "__main__":
    if sys.argv[1:] != ["--check"]:
        pod_schema.FILE.write_text(text(), encoding="utf-8")
    elif not pod_schema.FILE.is_file() or pod_schema.FILE.read_text(encoding="utf-8") != text():
        sys.exit(f"{pod_schema.FILE.name} is out of date; run python -m tools.pod_schema")
