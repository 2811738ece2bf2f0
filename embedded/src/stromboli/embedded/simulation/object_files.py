"""Reads the YAML files of a simulation: queues and advance reservations."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from stromboli.cli import manifests
from stromboli.cli.errors import CommandError
from stromboli.embedded.simulation.core import objects, workload
from stromboli.shared import decoding
from stromboli.shared.api import meta, reservation, scheduling
from stromboli.shared.jobspec.validation.queueing import reservations as reservation_rules

T = TypeVar("T", bound=meta.Object)


def queues(path: Path) -> tuple[scheduling.Queue, ...]:
    """The queues of a file. Raises CommandError."""
    queues_by_name = {each.metadata.name: each for _, each in _read(path, scheduling.Queue)}
    for name, queue in queues_by_name.items():
        parent = queue.spec.parent
        if parent and parent not in ("root", "default", *queues_by_name):
            raise CommandError(
                str(path), f"queue {name}: its parent {parent} does not exist", "add this queue"
            )
    return tuple(queues_by_name.values())


def reservations(
    path: Path, groups: Collection[workload.NodeGroup]
) -> tuple[reservation.AdvanceReservation, ...]:
    """The advance reservations of a file, checked as admission does. Raises CommandError."""
    nodes = [objects.node(group, name) for group in groups for name in group.names()]
    known = {each.metadata.name for each in nodes}
    reservations_by_name: dict[str, reservation.AdvanceReservation] = {}
    for document, each in _read(path, reservation.AdvanceReservation):
        for violation in reservation_rules.violations(each, reservations_by_name, nodes):
            place = document.place(violation.path)
            raise CommandError(
                place, f"{violation.path}: {violation.reason}", f"write {violation.expected}"
            )
        for name in each.spec.node_names:
            if name not in known:
                raise CommandError(
                    document.place("spec.nodeNames"),
                    f"spec.nodeNames: {name} is not in the file of --nodes",
                    "write one of its names",
                )
        reservations_by_name[each.metadata.name] = each
    return tuple(reservations_by_name.values())


def _read(path: Path, struct: type[T]) -> Iterator[tuple[manifests.Manifest, T]]:
    """Objects of one kind with their manifests, each name once."""
    kind, names = struct.__name__, set()
    for each in manifests.read([str(path)]):
        if each.document.get("kind") != kind:
            raise CommandError(
                each.place(""),
                f"{each.title} is not of kind {kind}",
                f"write only objects of the kind {kind}",
            )
        try:
            item = decoding.convert(each.document, struct)
        except msgspec.ValidationError as error:
            why, _, where = str(error).partition(" - at `$.")
            where = where.rstrip("`")
            raise CommandError(each.place(where), f"{where}: {why}", "correct it") from None
        if item.metadata.name in names:
            raise CommandError(
                each.place(""), f"{kind} {item.metadata.name} occurs twice", "keep one of them"
            )
        names.add(item.metadata.name)
        yield each, item
