"""The tree of queues, which may have cycles or missing parents.

A change costs O(parts of the hierarchy), and a rule reads only the ancestors, children or siblings
of a queue.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Literal

from stromboli.shared import keys
from stromboli.shared.api.scheduling import Queue
from stromboli.shared.formats import units

ROOT = "root"
"""The root queue."""
Field = Literal["capability", "deserved", "guarantee"]


class QueueTree:
    """Queues by name, with their children and the paths of their hierarchy annotations."""

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        self._queues: dict[str, Queue] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._at: dict[str, dict[str, None]] = {}
        self._under: dict[str, dict[str, None]] = {}
        self._amounts: dict[str, dict[Field, units.Amounts]] = {}
        for queue in queues:
            self.put(queue)

    def get(self, name: str) -> Queue | None:
        """The queue; None if it does not exist."""
        return self._queues.get(name)

    def names(self) -> Collection[str]:
        """The names of all queues."""
        return self._queues.keys()

    def children(self, name: str) -> Collection[str]:
        """Names of the children; the queue itself need not exist."""
        return self._children.get(name, {}).keys()

    def above(self, name: str) -> Collection[str]:
        """The names of a queue and its ancestors; in a cycle, each occurs once."""
        queue_names = {name: None}
        queue = self._queues.get(name)
        while queue is not None:
            name = parent_of(queue)
            if not name or name in queue_names:
                break
            queue_names[name] = None
            queue = self._queues.get(name)
        return queue_names

    def below(self, name: str) -> Collection[str]:
        """The names of a queue and its descendants; in a cycle, each occurs once."""
        queue_names = {name: None}
        waiting = [name]
        while waiting:
            new = [child for child in self.children(waiting.pop()) if child not in queue_names]
            queue_names |= dict.fromkeys(new)
            waiting += new
        return queue_names

    def broken_at(self, name: str) -> str | None:
        """The queue at which the path to the root ends, because its parent does not exist or is
        already on the path. None if the path reaches the root.
        """
        way = list(self.above(name))
        if way[-1] == ROOT:
            return None
        return way[-1] if way[-1] in self._queues else way[-2] if len(way) > 1 else name

    def is_endless(self, name: str) -> bool:
        """Whether following the parents leads into a cycle."""
        last = list(self.above(name))[-1]
        return last != ROOT and last in self._queues

    def is_in_a_circle(self, name: str) -> bool:
        """Whether the queue is its own descendant."""
        last = self._queues.get(list(self.above(name))[-1])
        return last is not None and parent_of(last) == name

    def at(self, path: str) -> Collection[str]:
        """Names of queues whose hierarchy annotation is this path."""
        return self._at.get(path, {}).keys()

    def under(self, path: str) -> Collection[str]:
        """Names of queues whose hierarchy annotation is below this path."""
        return self._under.get(path, {}).keys()

    def amounts(self, name: str, field: Field) -> units.Amounts:
        """The valid amounts in a field of an existing queue."""
        cached = self._amounts.setdefault(name, {})
        if field not in cached:
            cached[field] = amounts(self._queues[name], field)
        return cached[field]

    def put(self, queue: Queue) -> None:
        """Add or update a queue."""
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
        """Remove a queue; its children still name it as their parent."""
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
    """The name of the parent queue; empty for the root."""
    return "" if queue.metadata.name == ROOT else queue.spec.parent or ROOT


def hierarchy_of(queue: Queue) -> str:
    """The path in the queue's hierarchy annotation; empty without one."""
    return queue.metadata.annotation(keys.HIERARCHY) or ""


def paths_above(path: str) -> Iterator[str]:
    """All proper prefixes of a path: ``a`` and ``a/b`` for ``a/b/c``."""
    parts = path.split("/")
    for end in range(1, len(parts)):
        yield "/".join(parts[:end])


def amounts(queue: Queue, field: Field) -> units.Amounts:
    """The amounts in a field of a queue. Invalid ones are left out; other rules report them."""
    spec = queue.spec
    quantities = {
        "capability": spec.capability,
        "deserved": spec.deserved,
        "guarantee": spec.guarantee.resource,
    }
    return readable(quantities[field])


def readable(quantities: dict[str, str | int | float] | None) -> units.Amounts:
    """The amounts of the valid quantities."""
    valid_amounts: units.Amounts = {}
    for name, text in (quantities or {}).items():
        try:
            valid_amounts[name] = units.amount(name, text)
        except ValueError:
            continue
    return valid_amounts


def _discard(index: dict[str, dict[str, None]], at: str, name: str) -> None:
    names = index.get(at, {})
    names.pop(name, None)
    if not names:
        index.pop(at, None)
