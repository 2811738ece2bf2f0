"""Observes the effect of a decision in the snapshots.

``SEEN`` is final: no other snapshot, earlier ones included, shows the opposite, in whatever order
they are read (rule 2 of ``assumption_states``). Another object under the same name does not show
that the object of the decision is gone: it may be the previous one.
"""

import enum
from collections.abc import Callable, Iterator

from stromboli.scheduler.core.cache.in_flight.assumptions import Assumption, Effect
from stromboli.shared import decoding, envelope, snapshot, topics
from stromboli.shared.api import core, kinds, resource, scheduling, storage
from stromboli.shared.messages import cluster
from stromboli.shared.messages import scheduling as messages


class Observation(enum.IntEnum):
    """``WAITING``: the effect is not visible, or the object cannot be read. ``ABSENT``: there is no
    such object; it is gone, or its snapshot has not been read yet. ``SEEN``: the effect is visible.

    Of several observations the smallest counts.
    """

    WAITING = 0
    ABSENT = 1
    SEEN = 2


def observe(of: snapshot.Snapshot, assumption: Assumption) -> Observation:
    """Whether a snapshot shows the effect of an assumed decision yet. O(claims of the pod)."""
    match assumption.effect:
        case Effect.BIND:
            return _of_pod(of, assumption, is_bound)
        case Effect.EVICTION:
            return _of_pod(of, assumption, is_terminating)
        case Effect.ENTRY:
            return _of_entry(of, assumption)


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
        found = Observation.ABSENT
    elif not isinstance(pod, core.Pod):
        found = Observation.WAITING
    elif not assumption.is_of(pod):
        found = Observation.ABSENT
    else:
        found = Observation.SEEN if is_done(pod) else Observation.WAITING
    if found is Observation.WAITING or assumption.bind is None:
        return found
    return min((found, *_of_claims(of, assumption.bind)))


def _of_claims(of: snapshot.Snapshot, bind: messages.Bind) -> Iterator[Observation]:
    """Whether the claims show what the controller writes before the bind."""
    for volume in bind.volumes:
        key = f"{bind.namespace}/{volume.claim}"
        yield _of_volume(of, of.state(kinds.PERSISTENT_VOLUME_CLAIMS, key), volume)
    for devices in bind.devices:
        found = of.state(kinds.RESOURCE_CLAIMS, f"{bind.namespace}/{devices.claim}")
        if isinstance(found, snapshot.Unknown):
            yield Observation.WAITING
        elif not isinstance(found, resource.ResourceClaim) or found.metadata.uid != devices.uid:
            yield Observation.ABSENT
        else:
            is_written = found.status.allocation is not None
            yield Observation.SEEN if is_written else Observation.WAITING


def _of_volume(
    of: snapshot.Snapshot, claim: snapshot.State, wanted: messages.ClaimedVolume
) -> Observation:
    """Whether the claim and its volume name each other."""
    if isinstance(claim, snapshot.Unknown):
        return Observation.WAITING
    if not isinstance(claim, storage.PersistentVolumeClaim) or claim.metadata.uid != wanted.uid:
        return Observation.ABSENT
    if not claim.spec.volume_name:
        return Observation.WAITING
    if claim.spec.volume_name != wanted.volume:
        return Observation.SEEN
    volume = of.state(kinds.PERSISTENT_VOLUMES, wanted.volume)
    if volume is None:
        return Observation.ABSENT
    is_claimed = isinstance(volume, storage.PersistentVolume) and volume.spec.claim_ref is not None
    return Observation.SEEN if is_claimed else Observation.WAITING


def _of_entry(of: snapshot.Snapshot, assumption: Assumption) -> Observation:
    group = of.state(kinds.POD_GROUPS, assumption.key)
    if isinstance(group, snapshot.Unknown):
        return Observation.WAITING
    if not isinstance(group, scheduling.PodGroup) or group.metadata.uid != assumption.uid:
        return Observation.ABSENT
    decision = assumption.decision
    if not decision.is_answered:
        return Observation.WAITING
    entered = decision.enqueued_version
    is_seen = group.metadata.version >= entered if entered else has_entered(group)
    return Observation.SEEN if is_seen else Observation.WAITING
