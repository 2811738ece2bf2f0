"""Observes the effect of a decision in the snapshots.

``SEEN`` is final: no other snapshot, earlier ones included, shows the opposite, in whatever order
they are read (rule 2 of ``assumption_states``). Another object under the same name does not show
that the object of the decision is gone: it may be the previous one.
"""

import enum
from collections.abc import Callable

from stromboli.scheduler.core.cache.in_flight.assumption_states import State
from stromboli.scheduler.core.cache.in_flight.assumptions import Assumption, Effect
from stromboli.shared import decoding, envelope, snapshot, topics
from stromboli.shared.api import core, kinds, meta, resource, scheduling, storage
from stromboli.shared.messages import cluster


class Observation(enum.IntEnum):
    """``WAITING``: the effect is not visible, or the object cannot be read. ``ABSENT``: there is no
    such object; it is gone, or its snapshot has not been read yet. ``SEEN``: the effect is visible.
    """

    WAITING = 0
    ABSENT = 1
    SEEN = 2


def observe(of: snapshot.Snapshot, assumption: Assumption) -> Observation:
    """Whether a snapshot shows the effect of an assumed decision yet. O(1)."""
    match assumption.effect:
        case Effect.BIND:
            return _of_pod(of, assumption, is_bound)
        case Effect.EVICTION:
            return _of_pod(of, assumption, is_terminating)
        case Effect.ENTRY:
            return _of_entry(of, assumption)
        case Effect.VOLUME:
            return _of_volume(of, assumption)
        case Effect.DEVICES:
            return _of_devices(of, assumption)


def pod_version(record: envelope.Record, change: snapshot.Change | None) -> int:
    """The resourceVersion of a pod that its record contains, also of one that is deleted or cannot
    be decoded; 0 if there is none, or if the record is out of date or of another object."""
    if record.topic != topics.PODS:
        return 0
    if record.value is None:
        return envelope.deleted_version(record) or 0
    after = None if change is None else change.after
    if isinstance(after, core.Pod):
        return after.metadata.version
    if after is None or record.type != cluster.UNREADABLE:
        return 0
    message = envelope.decode(record)
    assert isinstance(message, cluster.Unreadable)
    return decoding.number(message.resource_version) or 0


def is_bound(pod: core.Pod) -> bool:
    """Whether the pod has a node."""
    return bool(pod.spec.node_name)


def is_terminating(pod: core.Pod) -> bool:
    """Whether the pod is being deleted."""
    return pod.metadata.deletion_timestamp is not None


def has_entered(group: scheduling.PodGroup) -> bool:
    """Whether the PodGroup's phase shows that its queue has admitted it."""
    return group.status.phase not in ("", "Pending")


def _of_pod(
    of: snapshot.Snapshot, assumption: Assumption, is_done: Callable[[core.Pod], bool]
) -> Observation:
    pod = of.state(kinds.PODS, assumption.key)
    if pod is None:
        return Observation.ABSENT
    if not isinstance(pod, core.Pod):
        return Observation.WAITING
    if not assumption.is_of(pod):
        return Observation.ABSENT
    return Observation.SEEN if is_done(pod) else Observation.WAITING


def _of_volume(of: snapshot.Snapshot, assumption: Assumption) -> Observation:
    """Whether the claim names the volume and the volume is claimed, or the claim has another
    volume."""
    claim = of.state(kinds.PERSISTENT_VOLUME_CLAIMS, assumption.key)
    assert assumption.volume is not None
    wanted = assumption.volume.volume
    if isinstance(claim, snapshot.Unknown):
        return Observation.WAITING
    if not isinstance(claim, storage.PersistentVolumeClaim) or claim.metadata.uid != assumption.uid:
        return Observation.ABSENT
    if not claim.spec.volume_name:
        return Observation.WAITING
    if claim.spec.volume_name != wanted:
        return Observation.SEEN
    volume = of.state(kinds.PERSISTENT_VOLUMES, wanted)
    if volume is None:
        return Observation.ABSENT
    is_claimed = isinstance(volume, storage.PersistentVolume) and volume.spec.claim_ref is not None
    return Observation.SEEN if is_claimed else Observation.WAITING


def _of_devices(of: snapshot.Snapshot, assumption: Assumption) -> Observation:
    claim = of.state(kinds.RESOURCE_CLAIMS, assumption.key)
    if isinstance(claim, snapshot.Unknown):
        return Observation.WAITING
    if not isinstance(claim, resource.ResourceClaim) or claim.metadata.uid != assumption.uid:
        return Observation.ABSENT
    is_written = claim.status.allocation is not None
    return _revocable(assumption, claim, is_visible=is_written)


def _of_entry(of: snapshot.Snapshot, assumption: Assumption) -> Observation:
    group = of.state(kinds.POD_GROUPS, assumption.key)
    if isinstance(group, snapshot.Unknown):
        return Observation.WAITING
    if not isinstance(group, scheduling.PodGroup) or group.metadata.uid != assumption.uid:
        return Observation.ABSENT
    return _revocable(assumption, group, is_visible=has_entered(group))


def _revocable(assumption: Assumption, obj: meta.Object, *, is_visible: bool) -> Observation:
    """The observation of an effect that can be revoked, even before a snapshot shows it: it counts
    as seen once the object was read in the outcome's version or a later one. ``is_visible``: the
    result for an outcome without a version."""
    if assumption.state is not State.EXECUTED:
        return Observation.WAITING
    version = assumption.version
    is_seen = obj.metadata.version >= version if version else is_visible
    return Observation.SEEN if is_seen else Observation.WAITING
