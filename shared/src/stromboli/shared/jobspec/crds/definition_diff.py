"""Compares an installed custom resource definition with ours, and finds the parts that it lacks.

An API server silently drops fields that its definition does not have, and rejects values outside an
enumeration. So the definition of another system, or of an older version, works for most objects and
fails for some: this module lists the differences.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
MAX_SHOWN = 5
"""Number of differences that are shown per definition, enough to recognize their kind."""
_OPEN = "x-kubernetes-preserve-unknown-fields"


def missing_parts(ours: Schema, theirs: Schema) -> tuple[str, ...]:
    """A line for each part that the other definition lacks: the scope, a version, its status,
    fields (only the outermost, as ``spec.tasks[].maxRetry``) and values.
    """
    return tuple(_missing_parts(ours["spec"], theirs.get("spec") or {}))


def shortened(lacks: tuple[str, ...]) -> str:
    """The differences in one line."""
    more = f" and {len(lacks) - MAX_SHOWN} more" if len(lacks) > MAX_SHOWN else ""
    return f"{', '.join(lacks[:MAX_SHOWN])}{more}"


def _missing_parts(ours: Schema, theirs: Schema) -> Iterator[str]:
    if theirs.get("scope") != ours["scope"]:
        yield f"its scope is {theirs.get('scope')}, not {ours['scope']}"
    others = {it.get("name"): it for it in theirs.get("versions") or ()}
    for version in ours["versions"]:
        other = others.get(version["name"])
        if other is None or not other.get("served"):
            yield f"version {version['name']} is not served"
            continue
        if "status" in version.get("subresources", {}) and "status" not in (
            other.get("subresources") or {}
        ):
            yield "status is not a subresource"
        theirs_of = (other.get("schema") or {}).get("openAPIV3Schema") or {}
        yield from _fields(version["schema"]["openAPIV3Schema"], theirs_of, "")


def _fields(ours: Schema, theirs: Schema, path: str) -> Iterator[str]:
    allowed = theirs.get("enum")
    if allowed is not None:
        missing = [it for it in ours.get("enum", ()) if it not in allowed]
        if missing or "enum" not in ours:
            missing_text = ", ".join(map(str, missing))
            yield (
                f"{path}: does not allow {missing_text}"
                if missing
                else f"{path}: allows only {len(allowed)} values"
            )
    properties = theirs.get("properties") or {}
    others = theirs.get("additionalProperties")
    for name, child in (ours.get("properties") or {}).items():
        at = f"{path}.{name}".removeprefix(".")
        if name in properties:
            yield from _fields(child, properties[name], at)
        elif isinstance(others, Mapping):
            yield from _fields(child, others, at)
        elif not (others or theirs.get(_OPEN)):
            yield at
    for key, suffix in (("items", "[]"), ("additionalProperties", ".*")):
        mine, other = ours.get(key), theirs.get(key)
        if isinstance(mine, Mapping) and isinstance(other, Mapping):
            yield from _fields(mine, other, path + suffix)
