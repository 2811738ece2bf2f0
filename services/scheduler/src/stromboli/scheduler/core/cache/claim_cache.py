"""Volumes, devices and their claims, as the snapshots show them and with open decisions applied.

From the decision on, the claims of a bind count as bound, and their volumes and devices as taken,
until the bind is refused or the snapshots show the result. Otherwise the next session would assign
them again.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stromboli.scheduler.core.cache import quarantine
from stromboli.scheduler.core.cache.in_flight import assume_cache
from stromboli.scheduler.core.cache.in_flight.assumptions import Effect
from stromboli.scheduler.core.cluster import auxiliary_objects
from stromboli.shared import keys, snapshot, topics
from stromboli.shared.api import core, kinds, meta, resource, storage
from stromboli.shared.api import scheduling_view as api_seen
from stromboli.shared.messages import scheduling

TOPICS = tuple(topics.SNAPSHOTS[kind] for kind in api_seen.CLAIM_KINDS)


class ClaimCache:
    """Updates ``cluster_resources`` from the snapshots and from open decisions."""

    def __init__(
        self,
        isolation: quarantine.Quarantine,
        assumed: assume_cache.AssumeCache,
        cluster_resources: auxiliary_objects.AuxiliaryObjects,
    ) -> None:
        self._seen = isolation
        self._assumed = assumed
        self._cluster_resources = cluster_resources

    def observe(self, kind: kinds.Kind[Any], key: str) -> None:
        """Update one object and the assumptions about it after a change of its snapshot."""
        if kind is kinds.PERSISTENT_VOLUME_CLAIMS:
            self._assumed.observe_claim(Effect.VOLUME, key)
        elif kind is kinds.PERSISTENT_VOLUMES:
            self._assumed.observe_volume(key)
        elif kind is kinds.RESOURCE_CLAIMS:
            self._assumed.observe_claim(Effect.DEVICES, key)
        self.follow(kind, key)

    def follow(self, kind: kinds.Kind[Any], key: str) -> None:
        """Update one object after a change of its snapshot or of a decision about it."""
        match self._seen.state(kind, key):
            case None:
                self._cluster_resources.remove(kind.struct, key)
            case snapshot.Unknown(reason=reason):
                self._cluster_resources.put_unreadable(kind.struct, key, reason)
            case state:
                self._cluster_resources.put(self._with_decisions(state))

    def refresh(self, *changed: scheduling.Bind) -> bool:
        """Update the claims of these binds, which were decided or answered, and of all binds with
        claims that were closed since the last call. Closed claims are as the snapshots show them.
        Returns whether a claim was closed. O(claims of these binds)."""
        released = self._assumed.take_released()
        for bind in (*changed, *released):
            for kind, key in _claim_keys(bind):
                if self._seen.state(kind, key) is not None:
                    self.follow(kind, key)
        return bool(released)

    def _with_decisions(self, obj: meta.Object) -> meta.Object:
        match obj:
            case storage.PersistentVolumeClaim():
                return self._volume_claim(obj)
            case storage.PersistentVolume():
                return self._volume(obj)
            case resource.ResourceClaim() if obj.status.allocation is None:
                allocation = self._assumed.devices_for(obj.metadata.key, obj.metadata.uid)
                if allocation is not None:
                    status = msgspec.structs.replace(obj.status, allocation=allocation)
                    return msgspec.structs.replace(obj, status=status)
        return obj

    def _volume_claim(
        self, persistent_volume_claim: storage.PersistentVolumeClaim
    ) -> storage.PersistentVolumeClaim:
        binding = self._assumed.volume_for(
            persistent_volume_claim.metadata.key, persistent_volume_claim.metadata.uid
        )
        if binding is None or persistent_volume_claim.spec.volume_name:
            return persistent_volume_claim
        volume, node = binding
        if volume:
            spec = msgspec.structs.replace(persistent_volume_claim.spec, volume_name=volume)
            return msgspec.structs.replace(persistent_volume_claim, spec=spec)
        annotations = {
            **(persistent_volume_claim.metadata.annotations or {}),
            keys.SELECTED_NODE: node,
        }
        metadata = msgspec.structs.replace(
            persistent_volume_claim.metadata, annotations=annotations
        )
        return msgspec.structs.replace(persistent_volume_claim, metadata=metadata)

    def _volume(self, persistent_volume: storage.PersistentVolume) -> storage.PersistentVolume:
        claim_key = self._assumed.claim_for(persistent_volume.metadata.name)
        if claim_key is None or persistent_volume.spec.claim_ref is not None:
            return persistent_volume
        namespace, name, uid = claim_key
        kept = storage.ClaimReference(namespace=namespace, name=name, uid=uid)
        spec = msgspec.structs.replace(persistent_volume.spec, claim_ref=kept)
        return msgspec.structs.replace(persistent_volume, spec=spec)


def with_annotations(pod: core.Pod, added: Mapping[str, str]) -> core.Pod:
    """The pod with the annotations that its bind writes."""
    if not added:
        return pod
    annotations = {**(pod.metadata.annotations or {}), **added}
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
    return msgspec.structs.replace(pod, metadata=metadata)


def _claim_keys(bind: scheduling.Bind) -> Iterator[tuple[kinds.Kind[Any], str]]:
    for volume in bind.volumes:
        yield kinds.PERSISTENT_VOLUME_CLAIMS, f"{bind.namespace}/{volume.claim}"
        if volume.volume:
            yield kinds.PERSISTENT_VOLUMES, volume.volume
    for devices in bind.devices:
        yield kinds.RESOURCE_CLAIMS, f"{bind.namespace}/{devices.claim}"
