"""Composes the definitions from `source/`, where each shared part of a schema is written once.

Definitions have no include mechanism, and four kinds contain a whole job spec. So the sources refer
to named fragments (`x-use: jobSpec`), and this module expands them. The generated files are
committed; a test compares them with their sources.
"""

import copy
import pathlib
from collections.abc import Mapping
from typing import Any

import yaml

from stromboli.shared.jobspec import policy_event_names
from stromboli.shared.jobspec.crds import catalog

SOURCE = catalog.DIRECTORY / "source"
FRAGMENTS = SOURCE / "fragments.yaml"

Schema = dict[str, Any]


class _Writer(yaml.SafeDumper):
    """A YAML dumper that writes no aliases, which would be hard to follow in a long file."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def compose_all() -> dict[pathlib.Path, str]:
    """The expected content of each generated file. Raises KeyError for a `x-use` of an unknown
    fragment.
    """
    fragments = catalog.read_yaml(FRAGMENTS)
    fragments["event"]["enum"] = list(policy_event_names.IN_CRD)
    return {
        catalog.DIRECTORY / source.name: _text(source, fragments)
        for source in sorted(SOURCE.glob("*.yaml"))
        if source != FRAGMENTS
    }


def write() -> None:
    """Write the generated files, for `kubectl apply`."""
    for path, text in compose_all().items():
        path.write_text(text, encoding="utf-8")


def _text(source: pathlib.Path, fragments: Mapping[str, Schema]) -> str:
    document = catalog.read_yaml(source)
    for version in document["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"] = _resolve(
            version["schema"]["openAPIV3Schema"], fragments
        )
    purpose = source.read_text(encoding="utf-8").splitlines()[0]
    body = yaml.dump(document, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=100)
    return (
        f"{purpose}\n"
        f"# Written by `python -m stromboli.shared.jobspec.crds` from source/{source.name} and\n"
        f"# source/{FRAGMENTS.name}: edit those.\n"
        f"{body}"
    )


def _resolve(schema: Schema, fragments: Mapping[str, Schema]) -> Schema:
    """The schema with every fragment expanded; keys beside `x-use` override those of the
    fragment.
    """
    own = {key: value for key, value in schema.items() if key not in {"x-use", "x-partial"}}
    used = fragments[schema["x-use"]] if "x-use" in schema else {}
    if "x-use" in used:
        used = _resolve(used, fragments)
    whole = _descend({**copy.deepcopy(used), **own}, lambda child: _resolve(child, fragments))
    return _partial(whole) if schema.get("x-partial") else whole


def _partial(schema: Schema) -> Schema:
    """The schema of a partial object: no required fields and no defaults."""
    kept = {key: value for key, value in schema.items() if key not in {"default", "required"}}
    return _descend(kept, _partial)


def _descend(schema: Schema, change: Any) -> Schema:
    """The schema with `change` applied to each of its direct subschemas."""
    changed = dict(schema)
    if "properties" in schema:
        changed["properties"] = {
            name: change(child) for name, child in schema["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if key in schema:
            changed[key] = change(schema[key])
    return changed
