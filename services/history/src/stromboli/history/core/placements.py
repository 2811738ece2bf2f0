"""What kubelets confirmed: the devices, exclusive CPUs and NUMA nodes of attempts. Pure.

The agent of a node reports the exclusive allocations of all its pods, by uid or by name. A report
and the events of a pod come in any order:

1. A report confirms the attempts that are open on its node, and those of its batch.
2. The last report of each node is kept, and confirms an attempt that is first seen running later.

A report concerns an attempt if it was made while the attempt had its node, so a pod of the same
name, such as that of the next attempt, is not mistaken for it. The last report wins. If the end of
an attempt was read before the first report that contains it, its placement stays unknown. A report
costs O(its allocations + open attempts of the node).
"""

from collections.abc import Iterable, Mapping

import msgspec

from stromboli.history.core.rows import SECOND, AttemptRow, ObjectRow, Rows, text
from stromboli.shared import decoding
from stromboli.shared.formats import cpu_lists
from stromboli.shared.messages import node_topology

PLACEMENTS = "Placements"
"""The kind of the rows with the last report of each node; changes of it are not recorded."""
SKEW_US = int(SECOND)
"""How much earlier the clock of a node may be than the controller's."""


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pod holds. ``cpus``: its exclusive CPUs; ``devices``: resource -> ids."""

    numa_nodes: tuple[int, ...] = ()
    cpus: str = ""
    devices: dict[str, tuple[str, ...]] = {}


Placements = Mapping[str, Placement]
"""Uid, or namespace and name, of a pod -> what it holds."""
_PLACEMENTS = decoding.decoder_of(dict[str, Placement])


def of(
    numa_nodes: Iterable[node_topology.NumaNode],
    allocations: Iterable[node_topology.ExclusiveAllocation],
) -> dict[str, Placement]:
    """What the pods of a node hold, all containers together."""
    cells = {it.id: _cpus(it.cpus) for it in numa_nodes}
    cpus: dict[str, set[int]] = {}
    nodes: dict[str, set[int]] = {}
    devices: dict[str, dict[str, tuple[str, ...]]] = {}
    for each in allocations:
        key = text(each.uid or f"{each.namespace}/{each.pod}")
        exclusive_cpus = _cpus(each.cpus)
        cpus.setdefault(key, set()).update(exclusive_cpus)
        numa_ids = nodes.setdefault(key, set())
        numa_ids.update(cell for cell, of_cell in cells.items() if exclusive_cpus & of_cell)
        cells_of = [it.numa_nodes for it in each.devices] + [it.numa_nodes for it in each.memory]
        numa_ids.update(cell for known in cells_of for cell in known if cell >= 0)
        own = devices.setdefault(key, {})
        for device in each.devices:
            resource = text(device.resource)
            own[resource] = (*own.get(resource, ()), *map(text, device.ids))
    return {
        key: Placement(tuple(sorted(numa_ids)), cpu_lists.written(cpus[key]), devices[key])
        for key, numa_ids in nodes.items()
    }


def confirm(rows: Rows, node: str, at: int, placements: Placements) -> None:
    """Apply the report of a node, made at a time, to its attempts."""
    key = PLACEMENTS, node
    before = rows.objects.get(key)
    if (before is None and not placements) or (before is not None and before.version >= at):
        return
    facts = msgspec.json.encode(placements, order="deterministic").decode()
    rows.objects[key] = ObjectRow(*key, version=at, created_at=at, facts=facts)
    for row in rows.attempts.values():
        if row.node == node:
            _confirm(row, at, placements)


def confirm_attempt(rows: Rows, row: AttemptRow) -> None:
    """Apply the last report of an attempt's node."""
    last = rows.objects.get((PLACEMENTS, row.node))
    if last is not None:
        _confirm(row, last.version, _PLACEMENTS.decode(last.facts))


def _confirm(row: AttemptRow, at: int, placements: Placements) -> None:
    placement = placements.get(row.pod_uid) or placements.get(f"{row.namespace}/{row.pod}")
    was_there = row.allocated_at is not None and row.allocated_at <= at + SKEW_US
    if placement is not None and was_there and (row.ended_at is None or at <= row.ended_at):
        row.placement = msgspec.json.encode(placement, order="deterministic").decode()


def _cpus(listed: str) -> frozenset[int]:
    """The CPUs of a list; none of an invalid one."""
    try:
        return cpu_lists.parsed(listed)
    except ValueError:
        return frozenset()
