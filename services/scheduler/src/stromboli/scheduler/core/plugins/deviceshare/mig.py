"""GPUs divided into instances of fixed sizes (MIG): choice of geometry and instance.

A geometry is a group of instance profiles with memory and count. A GPU in use has one geometry; an
unused one may get any geometry of its model. The position of an instance counts all instances of
earlier profiles and those of its own profile before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stromboli.shared import decoding


class Instance(NamedTuple):
    """One instance of a MIG GPU; ``name`` is ``group-position``."""

    name: str
    memory_mib: int


class InstanceProfile(msgspec.Struct, frozen=True):
    """Instances of one size. ``memory`` in MiB."""

    name: str
    memory: int
    count: int


class Geometry(msgspec.Struct, frozen=True):
    """A division of a GPU into MIG instances."""

    group: str
    geometries: tuple[InstanceProfile, ...]

    def instances(self) -> list[Instance]:
        """Return all instances in the order of their positions."""
        sizes = [kind.memory for kind in self.geometries for _ in range(kind.count)]
        return [Instance(f"{self.group}-{at}", memory) for at, memory in enumerate(sizes)]


class ModelGeometries(msgspec.Struct, frozen=True, rename="camel"):
    """The geometries of some GPU models."""

    models: tuple[str, ...]
    allowed_geometries: tuple[Geometry, ...]


def read(document: Sequence[Mapping[str, Any]]) -> tuple[ModelGeometries, ...]:
    """Return the geometries in an argument. Raises ValueError with the place and the mistake."""
    known = decoding.convert(list(document), tuple[ModelGeometries, ...])
    for each in known:
        for group in each.allowed_geometries:
            if "-" in group.group:
                raise ValueError(f"group {group.group!r}: it must not contain a hyphen")
            if any(kind.memory <= 0 or kind.count <= 0 for kind in group.geometries):
                raise ValueError(f"group {group.group!r}: memory and count must be above 0")
    return known


def layouts(known: Iterable[ModelGeometries], card_type: str) -> tuple[Geometry, ...]:
    """Return the geometries of the first model whose name is part of the GPU's type; none if
    unknown."""
    for each in known:
        if any(model in card_type for model in each.models):
            return each.allowed_geometries
    return ()


def smallest_free_instance(
    groups: Sequence[Geometry], used_instances: Sequence[str], memory_mib: int
) -> Instance | None:
    """Return the smallest free instance with enough memory, of the geometry in use or the first one
    that has any."""
    used = {name.rpartition("-")[0] for name in used_instances}
    for group in groups:
        if used and group.group not in used:
            continue
        free = [each for each in group.instances() if each.name not in used_instances]
        enough = [each for each in free if each.memory_mib >= memory_mib]
        if enough:
            return min(enough, key=lambda each: each.memory_mib)
    return None
