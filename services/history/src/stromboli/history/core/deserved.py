"""What queues used in an interval, against what they deserved. Pure.

The deserved amount of a queue's spec, integrated over the interval from the recorded changes of the
queue, backwards from its last known facts. Both the usage and the deserved amount of a queue
include the queues below it, in the last known tree. If a queue was deleted and created again, the
deserved amount of the deleted one is not known and counts as 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from stromboli.history.core import cluster_changes, folding
from stromboli.history.core.rows import SECOND
from stromboli.shared.api.views import accounting
from stromboli.shared.formats import units

DESERVED, PARENT = "spec.deserved.", "spec.parent"
ROOT = "root"
"""The queue above all others."""


class QueueState(msgspec.Struct, frozen=True):
    """The last known facts of a queue; see ``rows.ObjectRow``."""

    name: str
    facts: Mapping[str, str]
    is_deleted: bool = False


class QueueChange(msgspec.Struct, frozen=True):
    """A change of a queue; ``before``: the changed fields with their values before it."""

    name: str
    at: int
    action: str
    before: Mapping[str, str] = {}


def shares(
    queues: Iterable[QueueState],
    changes: Sequence[QueueChange],
    usage: Iterable[accounting.Usage],
    interval: tuple[int, int],
) -> tuple[accounting.QueueShare, ...]:
    """The queues that deserved CPU or GPUs in an interval, as a tree in preorder. ``changes``:
    those after its begin, the newest first; ``usage``: by queue. O(queues x depth + changes)."""
    known = {it.name: it for it in queues}
    changed: dict[str, list[QueueChange]] = {}
    for change in changes:
        changed.setdefault(change.name, []).append(change)
    used: dict[str, tuple[float, float]] = {}
    paths = {name: _path(known, name) for name in known}
    for each in usage:
        name = each.group["queue"]
        for above in paths.get(name, (name,)):
            cpu, gpu = used.get(above, (0.0, 0.0))
            used[above] = cpu + each.cpu_seconds, gpu + each.gpu_seconds
    queue_shares = []
    for name, path in sorted(paths.items(), key=lambda it: it[1]):
        deserved = _integral(known[name], changed.get(name, ()), *interval)
        if any(deserved):
            cpu, gpu = used.get(name, (0.0, 0.0))
            queue_shares.append(
                accounting.QueueShare(
                    queue=name,
                    depth=len(path) - 1,
                    cpu_seconds=cpu,
                    gpu_seconds=gpu,
                    deserved_cpu_seconds=deserved[0],
                    deserved_gpu_seconds=deserved[1],
                )
            )
    return tuple(queue_shares)


def _path(known: Mapping[str, QueueState], name: str) -> tuple[str, ...]:
    """The queues above a queue, the top one first, and itself; also in a cycle of parents."""
    path = [name]
    while path[0] != ROOT:
        above = known[path[0]].facts.get(PARENT) or ROOT
        if above not in known or above in path:
            break
        path.insert(0, above)
    return tuple(path)


def _integral(
    queue: QueueState, changes: Iterable[QueueChange], since: int, until: int
) -> tuple[float, float]:
    """Deserved core-seconds and GPU-seconds."""
    facts = dict(queue.facts)
    current_facts = {} if queue.is_deleted else facts
    begins: list[tuple[int, tuple[float, float]]] = []
    for change in changes:
        begins.append((change.at, _amounts(current_facts)))
        match change.action:
            case cluster_changes.CREATED:
                current_facts = {}
            case cluster_changes.DELETED:
                current_facts = facts
            case _:
                current_facts = {**current_facts, **change.before}
    begins.append((since, _amounts(current_facts)))
    cpu = gpu = 0.0
    end = until
    for at, (milli_cpu, milli_gpu) in begins:
        length_s = max(0, end - min(at, until)) / SECOND
        cpu, gpu = cpu + length_s * milli_cpu / 1000, gpu + length_s * milli_gpu / 1000
        end = min(at, until)
    return cpu, gpu


def _amounts(facts: Mapping[str, str]) -> tuple[float, float]:
    """Deserved milli-cores and milli-GPUs. An invalid quantity counts as 0: the queue was stored
    without admission."""
    cpu = gpu = 0
    for name, value in _deserved(facts):
        try:
            amount = units.amount(name, value) if value else 0
        except ValueError:
            continue
        cpu += amount if name == "cpu" else 0
        gpu += amount if folding.is_gpu(name) else 0
    return cpu, gpu


def _deserved(facts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for field, value in facts.items():
        if field.startswith(DESERVED):
            yield field.removeprefix(DESERVED), value
