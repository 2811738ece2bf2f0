"""GPUs divided into instances of fixed sizes (MIG): which layout, and which instance of it.

A layout is a group of kinds of instances with their memory and number; a GPU in use has one group,
an unused GPU any that is known for its model. Instances of a group are counted through: the
position of one is the number of all of earlier kinds and of its own kind before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec


class Instance(NamedTuple):
    """One instance of a divided GPU; ``name`` is ``group-position``."""

    name: str
    memory_mib: int


class InstanceProfile(msgspec.Struct, frozen=True):
    """Instances of one size. ``memory`` in MiB."""

    name: str
    memory: int
    count: int


class Geometry(msgspec.Struct, frozen=True):
    """A layout of a GPU."""

    group: str
    geometries: tuple[InstanceProfile, ...]

    def instances(self) -> list[Instance]:
        """All instances in the order of their positions."""
        sizes = [kind.memory for kind in self.geometries for _ in range(kind.count)]
        return [Instance(f"{self.group}-{at}", memory) for at, memory in enumerate(sizes)]


class ModelGeometries(msgspec.Struct, frozen=True, rename="camel"):
    """Layouts of some models of GPUs."""

    models: tuple[str, ...]
    allowed_geometries: tuple[Geometry, ...]


def read(document: Sequence[Mapping[str, Any]]) -> tuple[ModelGeometries, ...]:
    """Layouts as an argument has them. Raises ValueError that says where what is wrong."""
    known = msgspec.convert(list(document), tuple[ModelGeometries, ...])
    for each in known:
        for group in each.allowed_geometries:
            if "-" in group.group:
                raise ValueError(f"group {group.group!r}: it must not hold a hyphen")
            if any(kind.memory <= 0 or kind.count <= 0 for kind in group.geometries):
                raise ValueError(f"group {group.group!r}: memory and count must be above 0")
    return known


def layouts(known: Iterable[ModelGeometries], card_type: str) -> tuple[Geometry, ...]:
    """The groups of the first model whose name is part of the GPU's type; none if unknown."""
    for each in known:
        if any(model in card_type for model in each.models):
            return each.allowed_geometries
    return ()


def smallest_free_instance(
    groups: Sequence[Geometry], taken: Sequence[str], memory_mib: int
) -> Instance | None:
    """The smallest free instance with enough memory, of the group in use or the first with one."""
    used = {name.rpartition("-")[0] for name in taken}
    for group in groups:
        if used and group.group not in used:
            continue
        free = [each for each in group.instances() if each.name not in taken]
        enough = [each for each in free if each.memory_mib >= memory_mib]
        if enough:
            return min(enough, key=lambda each: each.memory_mib)
    return None
