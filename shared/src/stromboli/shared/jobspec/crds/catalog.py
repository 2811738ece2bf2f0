"""The packaged custom resource definitions, read once per process (about 20 ms with libyaml)."""

import copy
import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import yaml

DIRECTORY = pathlib.Path(__file__).parent

# PyYAML's C parser reads the files ten times as fast; it is missing where PyYAML was built without
# libyaml.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: pathlib.Path) -> Any:
    """The only document in a YAML file."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)


def paths() -> tuple[pathlib.Path, ...]:
    """The files for `kubectl apply -f`, one definition each, sorted by name."""
    return tuple(sorted(DIRECTORY.glob("*.yaml")))


def documents() -> list[dict[str, Any]]:
    """The definitions as documents, in the order of `paths`. These are copies, which the caller may
    change."""
    return copy.deepcopy(list(_definitions().values()))


def definition(group: str, kind: str) -> Mapping[str, Any]:
    """The definition of one kind. It is shared and must not be changed.

    Raises ValueError that names the known kinds for any other group or kind.
    """
    try:
        return _definitions()[group, kind]
    except KeyError:
        known = ", ".join(f"{kind}.{group}" for group, kind in sorted(_definitions()))
        raise ValueError(f"{kind}.{group} is not a custom resource of Stromboli: {known}") from None


def version(group: str, kind: str) -> str:
    """The only version in which a kind is served and stored. Raises ValueError like
    `definition`.
    """
    name: str = definition(group, kind)["spec"]["versions"][0]["name"]
    return name


def schema(group: str, kind: str) -> Mapping[str, Any]:
    """The OpenAPI schema of a kind. It is shared and must not be changed. Raises like
    `definition`."""
    version_schema: Mapping[str, Any] = definition(group, kind)["spec"]["versions"][0]["schema"]
    return version_schema["openAPIV3Schema"]  # type: ignore[no-any-return]


@functools.cache
def _definitions() -> Mapping[tuple[str, str], dict[str, Any]]:
    """All definitions by group and kind."""
    read = [read_yaml(path) for path in paths()]
    return {(crd["spec"]["group"], crd["spec"]["names"]["kind"]): crd for crd in read}
