"""Queues as a tree: who is below whom, also where somebody made a circle of them or named a parent
that is not there.

Kept change by change at O(parts of its hierarchy) each, so that a rule looks at a queue's relatives
and at nothing else.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Literal

from stromboli.shared import keys
from stromboli.shared.api.scheduling import Queue
from stromboli.shared.formats import units

ROOT = "root"
"""The queue above all others."""
Field = Literal["capability", "deserved", "guarantee"]


class QueueTree:
    """Queues by name, with those below each and with the paths of their hierarchy annotations."""

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        self._queues: dict[str, Queue] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._at: dict[str, dict[str, None]] = {}
        self._under: dict[str, dict[str, None]] = {}
        self._amounts: dict[str, dict[Field, units.Amounts]] = {}
        for queue in queues:
            self.put(queue)

    def get(self, name: str) -> Queue | None:
        """The queue, if it is there."""
        return self._queues.get(name)

    def names(self) -> Collection[str]:
        """Of all queues."""
        return self._queues.keys()

    def children(self, name: str) -> Collection[str]:
        """Names of those right below; the queue need not be there itself."""
        return self._children.get(name, {}).keys()

    def above(self, name: str) -> Collection[str]:
        """A queue and all above it as far as they are named; in a circle each once."""
        found = {name: None}
        queue = self._queues.get(name)
        while queue is not None:
            name = parent_of(queue)
            if not name or name in found:
                break
            found[name] = None
            queue = self._queues.get(name)
        return found

    def below(self, name: str) -> Collection[str]:
        """A queue and all below it; in a circle each once."""
        found = {name: None}
        waiting = [name]
        while waiting:
            new = [child for child in self.children(waiting.pop()) if child not in found]
            found |= dict.fromkeys(new)
            waiting += new
        return found

    def broken_at(self, name: str) -> str | None:
        """The queue at which the way up to the root ends: its parent is not there, or is on the way
        already. None if the root is reached."""
        way = list(self.above(name))
        if way[-1] == ROOT:
            return None
        return way[-1] if way[-1] in self._queues else way[-2] if len(way) > 1 else name

    def is_endless(self, name: str) -> bool:
        """Whether the way up leads into a circle."""
        last = list(self.above(name))[-1]
        return last != ROOT and last in self._queues

    def is_in_a_circle(self, name: str) -> bool:
        """Whether the queue is below itself."""
        last = self._queues.get(list(self.above(name))[-1])
        return last is not None and parent_of(last) == name

    def at(self, path: str) -> Collection[str]:
        """Queues whose hierarchy annotation is this path."""
        return self._at.get(path, {}).keys()

    def under(self, path: str) -> Collection[str]:
        """Queues whose hierarchy annotation lies below this path."""
        return self._under.get(path, {}).keys()

    def amounts(self, name: str, field: Field) -> units.Amounts:
        """What a queue that is there says of its share, as far as it can be read."""
        cached = self._amounts.setdefault(name, {})
        if field not in cached:
            cached[field] = amounts(self._queues[name], field)
        return cached[field]

    def put(self, queue: Queue) -> None:
        """A queue as it is now."""
        name = queue.metadata.name
        self.remove(name)
        self._queues[name] = queue
        if name != ROOT:
            self._children.setdefault(parent_of(queue), {})[name] = None
        path = hierarchy_of(queue)
        if path:
            self._at.setdefault(path, {})[name] = None
            for above in paths_above(path):
                self._under.setdefault(above, {})[name] = None

    def remove(self, name: str) -> None:
        """The queue is gone; those below it still name it."""
        queue = self._queues.pop(name, None)
        self._amounts.pop(name, None)
        if queue is None:
            return
        _discard(self._children, parent_of(queue), name)
        path = hierarchy_of(queue)
        _discard(self._at, path, name)
        for above in paths_above(path):
            _discard(self._under, above, name)


def parent_of(queue: Queue) -> str:
    """The queue that it is part of, empty for the root."""
    return "" if queue.metadata.name == ROOT else queue.spec.parent or ROOT


def hierarchy_of(queue: Queue) -> str:
    """Its path by annotation, empty without one."""
    return queue.metadata.annotation(keys.HIERARCHY) or ""


def paths_above(path: str) -> Iterator[str]:
    """``a`` and ``a/b`` of ``a/b/c``."""
    parts = path.split("/")
    for end in range(1, len(parts)):
        yield "/".join(parts[:end])


def amounts(queue: Queue, field: Field) -> units.Amounts:
    """What a queue says of its share. What cannot be read is left out: that is said by itself."""
    spec = queue.spec
    said = {
        "capability": spec.capability,
        "deserved": spec.deserved,
        "guarantee": spec.guarantee.resource,
    }
    return readable(said[field])


def readable(quantities: dict[str, str | int | float] | None) -> units.Amounts:
    """The amounts that can be read."""
    found: units.Amounts = {}
    for name, text in (quantities or {}).items():
        try:
            found[name] = units.amount(name, text)
        except ValueError:
            continue
    return found


def _discard(index: dict[str, dict[str, None]], at: str, name: str) -> None:
    found = index.get(at, {})
    found.pop(name, None)
    if not found:
        index.pop(at, None)
