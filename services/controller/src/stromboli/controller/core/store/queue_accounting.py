"""The queue tree, with the PodGroups of each queue by phase and the resources of their pods.

Pure, and updated incrementally: a change of a pod costs O(resources + depth). A pod uses its
requests from its binding until it has ended or is deleted. The requests of a terminating or
unreadable pod still count, since the node has not freed them yet.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from stromboli.shared import keys, snapshot
from stromboli.shared.api import core, kinds, scheduling
from stromboli.shared.formats import units
from stromboli.shared.jobspec import quota
from stromboli.shared.jobspec.validation.queueing import queue_tree, queues

ROOT = queue_tree.ROOT
"""The root queue."""
ENDED = ("Succeeded", "Failed")
Touched = tuple[Literal["queue", "queue counts", "queue rules"], str]
"""A queue to reconcile, and which of its reconcilers: state, counts, or validation."""


class _Held(msgspec.Struct, frozen=True):
    """The resources of one pod, and its PodGroup."""

    group: str
    amounts: units.Amounts


class QueueAccounting:
    """The PodGroups of each queue, and the resources that the pods of each PodGroup hold."""

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        """The maximum depth of the tree below the root."""
        self.tree = queue_tree.QueueTree()
        """All queues, each in its last readable version."""
        self._groups: dict[str, dict[str, str]] = {}
        self._queue_of: dict[str, str] = {}
        self._pods: dict[str, _Held] = {}
        self._held: dict[str, units.Amounts] = {}
        self._newest: dict[str, _Held] = {}

    def phases(self, queue: str) -> Iterable[str]:
        """The phases of the queue's PodGroups; a PodGroup without a phase counts as Pending."""
        return self._groups.get(queue, {}).values()

    def queue_of(self, group: str) -> str:
        """The PodGroup's queue; empty if the PodGroup is absent."""
        return self._queue_of.get(group, "")

    def held(self, within: Iterable[str]) -> units.Amounts:
        """The resources of the pods in these queues. O(PodGroups)."""
        total: units.Amounts = {}
        for queue in within:
            for group in self._groups.get(queue, ()):
                for name, value in self._held.get(group, {}).items():
                    total[name] = total.get(name, 0) + value
        return {name: value for name, value in total.items() if value}

    def follow(self, change: snapshot.Change, group: str | None) -> Iterator[Touched]:
        """Apply a change. Returns the affected queues. ``group``: the current PodGroup of a pod."""
        key, after = change.key, change.after
        if change.kind is kinds.PODS:
            # An unreadable pod may still use its resources.
            if not isinstance(after, snapshot.Unknown):
                pod = after if isinstance(after, core.Pod) else None
                for changed in self.put_pod(key, pod, group):
                    yield from self._counts(self.queue_of(changed))
        elif change.kind is kinds.POD_GROUPS:
            yield from self._follow_group(key, change.before, after)
        elif change.kind is kinds.QUEUES and not isinstance(after, snapshot.Unknown):
            now = after if isinstance(after, scheduling.Queue) else None
            yield from self._follow_queue(key, change.before, now)

    def _follow_queue(
        self, key: str, before: snapshot.State, after: scheduling.Queue | None
    ) -> Iterator[Touched]:
        was = before if isinstance(before, scheduling.Queue) else None
        if was is None or after is None or queue_tree.parent_of(was) != queue_tree.parent_of(after):
            yield from self._counts(key)
        if after is None:
            self.tree.remove(key)
        else:
            self.tree.put(after)
        yield from self._counts(key)
        if _state(was) != _state(after):
            yield from (("queue", name) for name in self.tree.children(key))
        yield from (("queue rules", name) for name in _concerned(self.tree, key, was, after))

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
            # It may have been the last unreadable PodGroup.
            yield from (("queue", name) for name in self.tree.names())

    def _counts(self, queue: str) -> Iterator[Touched]:
        if queue:
            yield from (("queue counts", name) for name in self.tree.above(queue))

    def put_group(self, key: str, group: scheduling.PodGroup | None) -> None:
        """Update a PodGroup; None if it is gone."""
        before = self._queue_of.pop(key, "")
        if before:
            phases = self._groups[before]
            phases.pop(key, None)
            if not phases:
                del self._groups[before]
        if group is not None:
            queue = group.spec.queue or "default"
            self._queue_of[key] = queue
            self._groups.setdefault(queue, {})[key] = group.status.phase or "Pending"

    def put_pod(self, key: str, pod: core.Pod | None, group: str | None) -> Iterator[str]:
        """Update a pod of ``group``; None if it is gone. Returns the PodGroups whose sum
        changed."""
        before, after = self._pods.get(key), None
        if pod is not None and group and pod.spec.node_name and pod.status.phase not in ENDED:
            after = self._shared(_Held(group, _amounts(pod.spec)))
        if before == after:
            return
        if after is None:
            del self._pods[key]
        else:
            self._pods[key] = after
        for pod_usage, sign in ((before, -1), (after, 1)):
            if pod_usage is not None:
                self._add(pod_usage, sign)
                yield pod_usage.group

    def _shared(self, pod_usage: _Held) -> _Held:
        """The object of the PodGroup's newest pod, if it is equal, so that 100,000 equal pods share
        one object."""
        newest = self._newest.get(pod_usage.group)
        if newest == pod_usage:
            return newest
        self._newest[pod_usage.group] = pod_usage
        return pod_usage

    def _add(self, pod_usage: _Held, sign: int) -> None:
        total = units.add(self._held.get(pod_usage.group, {}), units.times(sign, pod_usage.amounts))
        if any(total.values()):
            self._held[pod_usage.group] = total
        else:
            self._held.pop(pod_usage.group, None)
            self._newest.pop(pod_usage.group, None)


def _state(queue: scheduling.Queue | None) -> str | None:
    return None if queue is None else queue.status.state


def _concerned(
    tree: queue_tree.QueueTree,
    name: str,
    was: scheduling.Queue | None,
    now: scheduling.Queue | None,
) -> Iterator[str]:
    """Queues whose validation may change when queue ``name`` changes from ``was`` to ``now``; None:
    absent. O(yielded queues)."""
    if (
        was is not None
        and now is not None
        and queues.validated_fields(was) == queues.validated_fields(now)
    ):
        if was.metadata.annotation(keys.VIOLATIONS) != now.metadata.annotation(keys.VIOLATIONS):
            yield name
        return
    yield name
    for queue in (was, now):
        if queue is not None:
            yield queue_tree.parent_of(queue) or name
            for path in queue_tree.paths_above(queue_tree.hierarchy_of(queue)):
                yield from tree.at(path)
    if _bounds(was) != _bounds(now):
        yield from tree.below(name)


def _bounds(queue: scheduling.Queue | None) -> tuple[object, ...]:
    """The fields that child queues are validated against."""
    return () if queue is None else (queue_tree.parent_of(queue), queue.spec.capability)


def _amounts(spec: core.PodSpec) -> units.Amounts:
    """The requests of a pod; if a quantity is invalid, only the count of pods."""
    try:
        return {**quota.requests(spec), "pods": 1}
    except ValueError:
        return {"pods": 1}
