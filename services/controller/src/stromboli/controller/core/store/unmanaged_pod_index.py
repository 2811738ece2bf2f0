"""An index of unmanaged pods: pods that name our scheduler and do not belong to one of our jobs.

Pods are indexed by the PodGroup that is created for them. Pure; an update costs O(1). Pods of
Deployments, StatefulSets, Kubernetes Jobs and operators share the PodGroup of their owner; a pod
without an owner has its own. A pod whose creator names a PodGroup is not included.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from stromboli.shared import keys, snapshot
from stromboli.shared.api import core, kinds, meta, scheduling
from stromboli.shared.jobspec.validation.queueing import permissions

PREFIX = "podgroup-"
"""Prefix of the names of PodGroups that are created for unmanaged pods, as in Volcano."""
INHERITED = "volcano.sh/"
"""Prefix of annotations that a PodGroup inherits from its owner."""
_READ = (keys.GROUP_MIN_MEMBER, keys.GROUP_MIN_RESOURCES, keys.NAMESPACE_QUEUE)
"""Further annotations that a PodGroup inherits from its owner."""
_OWNERS = {(kind.api_version, kind.kind): kind for kind in kinds.WORKLOADS}


class Owner(msgspec.Struct, frozen=True):
    """The fields of an owner of pods that determine their PodGroup."""

    annotations: Mapping[str, str] = {}
    queue_label: str = ""
    is_gone: bool = False


GONE = Owner(is_gone=True)


def read_owner(owner: meta.ObjectMeta) -> Owner:
    """The relevant fields of an owner's metadata."""
    return Owner(
        annotations={
            name: value
            for name, value in (owner.annotations or {}).items()
            if name.startswith(INHERITED) or name in _READ
        },
        queue_label=owner.label(keys.QUEUE_NAME) or "",
    )


def owner_kind(pod: core.Pod) -> kinds.Kind[Any] | None:
    """The kind of the pod's owner, if it is a built-in kind."""
    owner = pod.metadata.controller
    return None if owner is None else _OWNERS.get((owner.api_version, owner.kind))


class UnmanagedPodIndex:
    """The pods of each PodGroup, by key, and the fields and resourceVersion of the owner of the
    pods."""

    def __init__(self, scheduler_names: Iterable[str]) -> None:
        self._scheduler_names = frozenset(scheduler_names)
        self._pods: dict[str, set[str]] = {}
        self._group_of: dict[str, str] = {}
        self._made: set[str] = set()
        self._owners: dict[str, tuple[int, Owner]] = {}
        self._of_kind: dict[kinds.Kind[Any], set[str]] = {}

    def pods(self, group: str) -> Collection[str]:
        """Keys of the pods of a PodGroup."""
        return self._pods.get(group, ())

    def groups(self) -> Collection[str]:
        """Keys of PodGroups that exist or have to be created."""
        return {*self._pods, *self._made}

    def owner(self, group: str) -> Owner | None:
        """The fields of the owner of a PodGroup's pods; None if it was not read yet."""
        return self._owners.get(group, (0, None))[1]

    def has_owners(self, kind: kinds.Kind[Any]) -> bool:
        """Whether there are pods with owners of this kind."""
        return bool(self._of_kind.get(kind))

    def note_owner(self, namespace: str, uid: str, read: meta.ObjectMeta | None) -> Iterator[str]:
        """Update an owner; ``read`` None: it is deleted. Returns the PodGroups to reconcile. Owners
        without unmanaged pods, and older versions, are ignored."""
        group = f"{namespace}/{PREFIX}{uid}"
        version, owner = (0, GONE) if read is None else (read.version, read_owner(read))
        before, known = self._owners.get(group, (-1, None))
        if group not in self._pods or version < before:
            return
        self._owners[group] = (version, owner)
        if owner != known:
            yield group

    def follow(self, change: snapshot.Change) -> Iterator[str]:
        """Apply a change. Returns the PodGroups to reconcile."""
        if change.kind is kinds.PODS:
            yield from self._follow_pod(change.key, change.after)
        elif change.kind is kinds.POD_GROUPS:
            if is_made(change.after):
                self._made.add(change.key)
            elif not isinstance(change.after, snapshot.Unknown):
                self._made.discard(change.key)
            if change.key in self._pods or change.key in self._made:
                yield change.key
        elif change.kind is kinds.NAMESPACES:
            yield from self._follow_namespace(change)
        elif change.kind in (kinds.QUEUES, kinds.PRIORITY_CLASSES) and (
            _permissions_of(change.before) != _permissions_of(change.after)
        ):
            yield from self._pods  # O(PodGroups): a list rarely changes

    def _follow_namespace(self, change: snapshot.Change) -> Iterator[str]:
        """Update the default queue of a namespace. O(PodGroups)."""
        if _queue_of(change.before) != _queue_of(change.after):
            yield from (key for key in self._pods if key.startswith(f"{change.key}/"))

    def _follow_pod(self, key: str, after: snapshot.State) -> Iterator[str]:
        if isinstance(after, snapshot.Unknown):
            return  # an unreadable pod may be unchanged
        group = self._wanted(after) if isinstance(after, core.Pod) else None
        before = self._group_of.pop(key, None)
        if before is not None and before != group:
            self._pods[before].discard(key)
            if not self._pods[before]:
                self._forget(before)
            yield before
        if group is not None and isinstance(after, core.Pod):
            self._group_of[key] = group
            self._pods.setdefault(group, set()).add(key)
            kind = owner_kind(after)
            if kind is not None:
                self._of_kind.setdefault(kind, set()).add(group)
            yield group

    def _forget(self, group: str) -> None:
        del self._pods[group]
        self._owners.pop(group, None)
        for groups in self._of_kind.values():
            groups.discard(group)

    def _wanted(self, pod: core.Pod) -> str | None:
        if pod.spec.scheduler_name not in self._scheduler_names or kinds.JOBS.controls(pod):
            return None
        wanted = group_name(pod)
        if pod.metadata.annotation(keys.GROUP_NAME) not in (None, "", wanted):
            return None
        return f"{pod.metadata.namespace}/{wanted}"


def group_name(pod: core.Pod) -> str:
    """The name of the PodGroup for a pod, from the uid of its owner, or of the pod if it has
    none."""
    owner = pod.metadata.controller
    return PREFIX + (pod.metadata.uid if owner is None else owner.uid)


def _permissions_of(state: snapshot.State) -> object:
    """The permissions of a queue or priority class. An absent object permits all, since its absence
    is reported elsewhere."""
    if isinstance(state, snapshot.Unknown):
        return state
    if state is None or not permissions.is_restricted(state.metadata):
        return None
    return permissions.names(state.metadata.annotation(keys.ALLOWED_NAMESPACES))


def _queue_of(namespace: snapshot.State) -> str | None:
    if not isinstance(namespace, core.Namespace):
        return None
    return namespace.metadata.annotation(keys.NAMESPACE_QUEUE)


def is_made(state: snapshot.State) -> bool:
    """Whether a controller created the PodGroup for unmanaged pods: this one, which annotates it,
    or Volcano's, which gives it the same name and owner."""
    if not isinstance(state, scheduling.PodGroup):
        return False
    owner = state.metadata.controller
    is_named = owner is not None and state.metadata.name == PREFIX + owner.uid
    return is_named or state.metadata.annotation(keys.MADE_FOR_PODS) == "true"
