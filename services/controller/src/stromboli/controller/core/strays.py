"""Pods that name our scheduler and belong to no job of ours, by the PodGroup that they are to have.

Pure, and kept change by change in O(1). Pods of Deployments, StatefulSets, Kubernetes Jobs and
operators share the PodGroup of their owner; a pod by itself has one of its own. A pod whose maker
names a PodGroup for it is none of ours.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from stromboli.shared import keys, snapshot
from stromboli.shared.api import core, kinds, meta, scheduling

PREFIX = "podgroup-"
"""How the names of PodGroups begin that are made for such pods (spec/jobs.md 7.1)."""


class Strays:
    """PodGroup key -> its pods; owner's uid -> the annotations it was read with."""

    def __init__(self, scheduler_names: Iterable[str]) -> None:
        self._scheduler_names = frozenset(scheduler_names)
        self._pods: dict[str, set[str]] = {}
        self._group_of: dict[str, str] = {}
        self._made: set[str] = set()
        self._owners: dict[str, Mapping[str, str]] = {}

    def pods(self, group: str) -> Collection[str]:
        """Keys of the pods that are to be in a PodGroup."""
        return self._pods.get(group, ())

    def groups(self) -> Collection[str]:
        """PodGroups that are to be made or were made."""
        return {*self._pods, *self._made}

    def owner(self, uid: str) -> Mapping[str, str] | None:
        """What was read of an owner; None if nobody has looked yet."""
        return self._owners.get(uid)

    def note_owner(self, uid: str, annotations: Mapping[str, str]) -> None:
        """The owner was read; one that is gone has no annotations."""
        self._owners[uid] = annotations

    def follow(self, change: snapshot.Change) -> Iterator[str]:
        """Take in any change; PodGroups that need a look."""
        if change.kind is kinds.PODS:
            yield from self._follow_pod(change.key, change.after)
        elif change.kind is kinds.POD_GROUPS:
            if is_made(change.after):
                self._made.add(change.key)
            elif not isinstance(change.after, snapshot.Unknown):
                self._made.discard(change.key)
            if change.key in self._pods or change.key in self._made:
                yield change.key

    def _follow_pod(self, key: str, after: snapshot.State) -> Iterator[str]:
        if isinstance(after, snapshot.Unknown):
            return  # it may be what it was
        group = self._wanted(after) if isinstance(after, core.Pod) else None
        before = self._group_of.pop(key, None)
        if before is not None and before != group:
            self._pods[before].discard(key)
            if not self._pods[before]:
                del self._pods[before]
                self._owners.pop(before.partition(f"/{PREFIX}")[2], None)
            yield before
        if group is not None:
            self._group_of[key] = group
            self._pods.setdefault(group, set()).add(key)
            yield group

    def _wanted(self, pod: core.Pod) -> str | None:
        if pod.spec.scheduler_name not in self._scheduler_names or is_of_job(pod):
            return None
        wanted = group_name(pod)
        if pod.metadata.annotation(keys.GROUP_NAME) not in (None, "", wanted):
            return None
        return f"{pod.metadata.namespace}/{wanted}"


def group_name(pod: core.Pod) -> str:
    """The name of the PodGroup for a pod: that of its owner, else of the pod itself."""
    owner = pod.metadata.controller
    return PREFIX + (pod.metadata.uid if owner is None else owner.uid)


def is_of_job(found: meta.Object) -> bool:
    """Whether a job of ours manages it."""
    owner = found.metadata.controller
    return owner is not None and (owner.api_version, owner.kind) == (
        kinds.JOBS.api_version,
        kinds.JOBS.kind,
    )


def is_made(state: snapshot.State) -> bool:
    """Whether we made this PodGroup for such pods."""
    if not isinstance(state, scheduling.PodGroup):
        return False
    return state.metadata.annotation(keys.MADE_FOR_PODS) == "true"
