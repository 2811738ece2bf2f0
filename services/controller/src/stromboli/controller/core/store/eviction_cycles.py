"""Detects jobs that evict each other: A evicts a pod of B, and B, once restarted, evicts a pod of
A.

Such a cycle wastes the work of all its jobs. It follows from a configuration in which two rules
contradict each other, for example a high priority in a queue above its deserved share.

An eviction is an edge from the PodGroup that gets the room to the PodGroup of the victim. An
eviction that closes a path back to its own beneficiary within ``WINDOW`` is a cycle, and all
PodGroups on the path are in it. PodGroups are compared by uid: a job that is submitted again has
another PodGroup.

Memory: at most ``MOST_EVICTIONS`` edges; the oldest are dropped first, so that a cluster with more
evictions in the window may miss a cycle and never reports a wrong one. Time: O(1) for a victim that
evicted no pod itself, else O(edges that can be reached from it). A new leader starts with no edges
and finds a cycle that continues.
"""

from collections import OrderedDict
from datetime import datetime, timedelta

import msgspec

WINDOW = timedelta(minutes=10)
"""Evictions within this time can form a cycle. A detected cycle is reported for the same time after
its last eviction."""
MOST_EVICTIONS = 10_000
"""Maximum number of edges."""


class Member(msgspec.Struct, frozen=True):
    """A PodGroup in a cycle. ``key`` and ``uid`` are the PodGroup's."""

    key: str
    uid: str


class _Found(msgspec.Struct, frozen=True):
    members: tuple[Member, ...]
    at: datetime


class EvictionCycles:
    """Recent evictions, and the cycles among them. All times must come from one clock."""

    def __init__(self) -> None:
        self._edges: OrderedDict[tuple[Member, Member], datetime] = OrderedDict()
        self._victims: dict[Member, dict[Member, None]] = {}
        self._found: dict[str, _Found] = {}

    def note(self, beneficiary: Member, victim: Member, now: datetime) -> tuple[Member, ...]:
        """Note an executed eviction; return the members of the cycle that it closes, the
        beneficiary first. Empty if it closes no cycle, or a cycle that was reported before."""
        self._drop_before(now - WINDOW)
        if beneficiary == victim:
            return ()
        edge = beneficiary, victim
        self._edges[edge] = now
        self._edges.move_to_end(edge)
        self._victims.setdefault(beneficiary, {})[victim] = None
        if len(self._edges) > MOST_EVICTIONS:
            self._drop(next(iter(self._edges)))
        path = self._path(victim, beneficiary)
        if not path:
            return ()
        members = (beneficiary, *path[:-1])
        is_known = all(set(self.of(each.uid, now)) == set(members) for each in members)
        for each in members:
            known = self.of(each.uid, now) if is_known else members
            self._found[each.uid] = _Found(known, now)
        return () if is_known else members

    def of(self, uid: str, now: datetime) -> tuple[Member, ...]:
        """The members of the last cycle of this PodGroup; empty once its window is over."""
        last_cycle = self._found.get(uid)
        return last_cycle.members if last_cycle is not None and now < last_cycle.at + WINDOW else ()

    def until(self, uid: str) -> datetime | None:
        """The time from which the last cycle of this PodGroup is no longer reported; None without a
        cycle."""
        last_cycle = self._found.get(uid)
        return None if last_cycle is None else last_cycle.at + WINDOW

    def _path(self, start: Member, end: Member) -> tuple[Member, ...]:
        """A shortest path of evictions between two members, both included."""
        came_from: dict[Member, Member | None] = {start: None}
        front = [start]
        while front and end not in came_from:
            reached = []
            for each in front:
                for victim in self._victims.get(each, ()):
                    if victim not in came_from:
                        came_from[victim] = each
                        reached.append(victim)
            front = reached
        path: list[Member] = []
        at = end if end in came_from else None
        while at is not None:
            path.append(at)
            at = came_from[at]
        return tuple(reversed(path))

    def _drop_before(self, limit: datetime) -> None:
        while self._edges:
            edge, at = next(iter(self._edges.items()))
            if at > limit:
                break
            self._drop(edge)
        ended = [uid for uid, last_cycle in self._found.items() if last_cycle.at <= limit]
        for uid in ended:
            del self._found[uid]

    def _drop(self, edge: tuple[Member, Member]) -> None:
        del self._edges[edge]
        beneficiary, victim = edge
        del self._victims[beneficiary][victim]
        if not self._victims[beneficiary]:
            del self._victims[beneficiary]


def message_of(members: tuple[Member, ...], namespace: str) -> str:
    """The sentence that explains a cycle to the users of a namespace. Names of other namespaces are
    not shown to them."""
    names = [
        each.key if each.key.startswith(f"{namespace}/") else "a job in another namespace"
        for each in members
    ]
    minutes = int(WINDOW.total_seconds() // 60)
    path = " evicted ".join([*names, names[0]])
    return (
        f"These jobs evict each other: {path}, within {minutes} minutes. Check their priorities, "
        "and the fields deserved and reclaimable of their queues."
    )
