"""The tree of queues by their parents. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from stromboli.shared.api import scheduling

ROOT = "root"
"""The queue above all others."""


def preorder(queues: Mapping[str, scheduling.Queue]) -> list[tuple[str, int]]:
    """The names of the queues in preorder, children by name, each with its depth (0 for the top
    level). Queues in a cycle of parents have no top: they follow at depth 0. O(n log n)."""
    children: dict[str, list[str]] = {}
    for name, queue in sorted(queues.items()):
        parent = queue.spec.parent or ROOT
        if name != ROOT:
            children.setdefault(parent if parent in queues else "", []).append(name)
    names_and_depths: list[tuple[str, int]] = []
    visited: set[str] = set()
    tops = [*([ROOT] if ROOT in queues else []), *children.get("", [])]
    waiting = [(name, 0) for name in reversed(tops)]
    while waiting:
        name, depth = waiting.pop()
        if name in visited:
            continue
        visited.add(name)
        names_and_depths.append((name, depth))
        waiting += [(child, depth + 1) for child in reversed(children.get(name, []))]
    return [*names_and_depths, *((name, 0) for name in sorted(queues.keys() - visited))]


def ancestors(queues: Mapping[str, scheduling.Queue], name: str) -> Iterator[str]:
    """The queue and the queues above it, each once, also in a cycle of parents."""
    visited: set[str] = set()
    while name not in visited:
        visited.add(name)
        yield name
        queue = queues.get(name)
        name = (queue.spec.parent or ROOT) if queue is not None and name != ROOT else name


def parent(queues: Mapping[str, scheduling.Queue], name: str) -> str:
    """The parent of a queue; empty at the top level, or if the parent is unknown."""
    above = queues[name].spec.parent or ROOT
    return above if name != ROOT and above in queues else ""


def by_name(queues: Iterable[scheduling.Queue]) -> dict[str, scheduling.Queue]:
    """Name -> queue."""
    return {queue.metadata.name: queue for queue in queues}
