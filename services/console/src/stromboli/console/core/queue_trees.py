"""The tree of queues by their parents. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from stromboli.shared.api import scheduling

ROOT = "root"
"""The queue above all others."""


def preorder(queues: Mapping[str, scheduling.Queue]) -> list[tuple[str, int]]:
    """The names of queues, each before its children, which are by name; with the depth, 0 for the
    top level. A stored loop of parents has no top: its queues follow the tree. O(n log n)."""
    children: dict[str, list[str]] = {}
    for name, queue in sorted(queues.items()):
        parent = queue.spec.parent or ROOT
        if name != ROOT:
            children.setdefault(parent if parent in queues else "", []).append(name)
    found: list[tuple[str, int]] = []
    seen: set[str] = set()
    tops = [*([ROOT] if ROOT in queues else []), *children.get("", [])]
    waiting = [(name, 0) for name in reversed(tops)]
    while waiting:
        name, depth = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        found.append((name, depth))
        waiting += [(child, depth + 1) for child in reversed(children.get(name, []))]
    return [*found, *((name, 0) for name in sorted(queues.keys() - seen))]


def ancestors(queues: Mapping[str, scheduling.Queue], name: str) -> Iterator[str]:
    """The queue and those above it; each once, also in a loop of parents."""
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        yield name
        found = queues.get(name)
        name = (found.spec.parent or ROOT) if found is not None and name != ROOT else name


def parent(queues: Mapping[str, scheduling.Queue], name: str) -> str:
    """The queue above a queue; empty at the top, or if it is not known."""
    above = queues[name].spec.parent or ROOT
    return above if name != ROOT and above in queues else ""


def by_name(queues: Iterable[scheduling.Queue]) -> dict[str, scheduling.Queue]:
    """Name -> queue."""
    return {queue.metadata.name: queue for queue in queues}
