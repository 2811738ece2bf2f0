"""The tree of queues, and what is in each: its PodGroups by phase, and what their pods hold.

Pure, and kept change by change: a pod costs O(resources + depth). It holds its requests from the
moment it has a node until it has ended or is gone, also while it is going and while it cannot be
read: nobody else can have them before.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Literal

import msgspec

from stromboli.shared import quota, snapshot, units
from stromboli.shared.api import core, kinds, scheduling

ROOT = "root"
"""The queue above all others."""
ENDED = ("Succeeded", "Failed")
Touched = tuple[Literal["queue", "queue counts"], str]
"""A queue that needs a look: for its state, or for its numbers."""


class _Held(msgspec.Struct, frozen=True):
    """What one pod holds, as a member of which PodGroup."""

    group: str
    amounts: units.Amounts


class Books:
    """Queue -> its PodGroups, PodGroup -> what its pods hold."""

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        """Levels of queues that there may be below the root."""
        self._parents: dict[str, str] = {}
        self._groups: dict[str, dict[str, str]] = {}
        self._queue_of: dict[str, str] = {}
        self._pods: dict[str, _Held] = {}
        self._held: dict[str, units.Amounts] = {}

    def phases(self, queue: str) -> Iterable[str]:
        """The phases of the queue's PodGroups; one without a phase is Pending."""
        return self._groups.get(queue, {}).values()

    def queue_of(self, group: str) -> str:
        """The PodGroup's queue, empty if there is no such PodGroup."""
        return self._queue_of.get(group, "")

    def held(self, queues: Iterable[str]) -> units.Amounts:
        """What the pods in these queues hold. O(PodGroups)."""
        total: units.Amounts = {}
        for queue in queues:
            for group in self._groups.get(queue, ()):
                for name, value in self._held.get(group, {}).items():
                    total[name] = total.get(name, 0) + value
        return {name: value for name, value in total.items() if value}

    def below(self, queue: str) -> Collection[str]:
        """A queue and all below it; whoever made a circle of them gets each once."""
        found = {queue: None}
        waiting = [queue]
        while waiting:
            parent = waiting.pop()
            children = [name for name in self._children(parent) if name not in found]
            found |= dict.fromkeys(children)
            waiting += children
        return found

    def above(self, queue: str) -> Collection[str]:
        """A queue and all above it, up to the root."""
        found = dict[str, None]()
        while queue and queue not in found:
            found[queue] = None
            queue = self._parents.get(queue, "")
        return found

    def depth(self, queue: str) -> int:
        """Levels below the root, 1 for its children; in a circle, how many are in it."""
        return sum(name != ROOT for name in self.above(queue))

    def follow(self, change: snapshot.Change, group: str | None) -> Iterator[Touched]:
        """Take in any change; queues of which something changed. ``group``: the PodGroup that a
        pod is a member of now."""
        key, after = change.key, change.after
        if change.kind is kinds.PODS:
            # What cannot be read may hold what it held.
            if not isinstance(after, snapshot.Unknown):
                pod = after if isinstance(after, core.Pod) else None
                for changed in self.put_pod(key, pod, group):
                    yield from self._counts(self.queue_of(changed))
        elif change.kind is kinds.POD_GROUPS:
            yield from self._follow_group(key, change.before, after)
        elif change.kind is kinds.QUEUES and not isinstance(after, snapshot.Unknown):
            yield from self._counts(key)
            parent = self._parents.get(key)
            if isinstance(after, scheduling.Queue):
                self._parents[key] = parent_of(after)
            else:
                self._parents.pop(key, None)
            yield from self._counts(key)
            # Queues below follow its state, and are as deep as it lies.
            has_moved = self._parents.get(key) != parent
            below = self.below(key) if has_moved else self._children(key)
            yield from (("queue", name) for name in below)

    def _follow_group(
        self, key: str, before: snapshot.State, after: snapshot.State
    ) -> Iterator[Touched]:
        was = self.queue_of(key)
        if not isinstance(after, snapshot.Unknown):
            self.put_group(key, after if isinstance(after, scheduling.PodGroup) else None)
        for name in dict.fromkeys((was, self.queue_of(key))):
            yield from self._counts(name)
            if name:
                yield ("queue", name)
        if isinstance(before, snapshot.Unknown):
            # It may have been the last one that nobody could read.
            yield from (("queue", name) for name in self._parents)

    def _counts(self, queue: str) -> Iterator[Touched]:
        yield from (("queue counts", name) for name in self.above(queue))

    def _children(self, queue: str) -> list[str]:
        return [name for name, parent in self._parents.items() if parent == queue]

    def put_group(self, key: str, group: scheduling.PodGroup | None) -> None:
        """The PodGroup as it is now; None if it is gone."""
        before = self._queue_of.pop(key, "")
        if before:
            found = self._groups[before]
            found.pop(key, None)
            if not found:
                del self._groups[before]
        if group is not None:
            queue = group.spec.queue or "default"
            self._queue_of[key] = queue
            self._groups.setdefault(queue, {})[key] = group.status.phase or "Pending"

    def put_pod(self, key: str, pod: core.Pod | None, group: str | None) -> Iterator[str]:
        """The pod as it is now, a member of ``group``; None if it is gone. Says of which PodGroups
        the sum changed."""
        after = None
        if pod is not None and group and pod.spec.node_name and pod.status.phase not in ENDED:
            after = _Held(group, _amounts(pod.spec))
        before = self._pods.pop(key, None)
        if after is not None:
            self._pods[key] = after
        if before == after:
            return
        for held, sign in ((before, -1), (after, 1)):
            if held is not None:
                self._add(held, sign)
                yield held.group

    def _add(self, held: _Held, sign: int) -> None:
        total = units.add(self._held.get(held.group, {}), units.times(sign, held.amounts))
        if any(total.values()):
            self._held[held.group] = total
        else:
            self._held.pop(held.group, None)


def parent_of(queue: scheduling.Queue) -> str:
    """The queue that it is part of, empty for the root."""
    return "" if queue.metadata.name == ROOT else queue.spec.parent or ROOT


def _amounts(spec: core.PodSpec) -> units.Amounts:
    """What a pod takes; nothing but its place, where a quantity is none."""
    try:
        return {**quota.requests(spec), "pods": 1}
    except ValueError:
        return {"pods": 1}
