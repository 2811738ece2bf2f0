"""Volumes, devices and their claims, as the snapshots show them and with open decisions applied.

From the decision on, the claim counts as bound and its volume and devices as taken, until the bind
is refused or the snapshots show the result. Otherwise the next session would assign them again.
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
        seen: quarantine.Quarantine,
        assumed: assume_cache.AssumeCache,
        cluster_resources: auxiliary_objects.AuxiliaryObjects,
    ) -> None:
        self._seen = seen
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
            case found:
                self._cluster_resources.put(self._with_decisions(found))

    def refresh(self, *changed: scheduling.Bind) -> bool:
        """Update the claims of these binds, which were decided or answered, and of all binds that
        were closed since the last call: from now on, their claims are as in the snapshots. Returns
        whether a bind was closed. O(claims of these binds)."""
        released = self._assumed.take_released()
        for bind in (*changed, *released):
            for kind, key in _claim_keys(bind):
                if self._seen.state(kind, key) is not None:
                    self.follow(kind, key)
        return bool(released)

    def _with_decisions(self, found: meta.Object) -> meta.Object:
        match found:
            case storage.PersistentVolumeClaim():
                return self._volume_claim(found)
            case storage.PersistentVolume():
                return self._volume(found)
            case resource.ResourceClaim() if found.status.allocation is None:
                given = self._assumed.devices_for(found.metadata.key, found.metadata.uid)
                if given is not None:
                    status = msgspec.structs.replace(found.status, allocation=given)
                    return msgspec.structs.replace(found, status=status)
        return found

    def _volume_claim(self, found: storage.PersistentVolumeClaim) -> storage.PersistentVolumeClaim:
        given = self._assumed.volume_for(found.metadata.key, found.metadata.uid)
        if given is None or found.spec.volume_name:
            return found
        volume, node = given
        if volume:
            spec = msgspec.structs.replace(found.spec, volume_name=volume)
            return msgspec.structs.replace(found, spec=spec)
        annotations = {**(found.metadata.annotations or {}), keys.SELECTED_NODE: node}
        metadata = msgspec.structs.replace(found.metadata, annotations=annotations)
        return msgspec.structs.replace(found, metadata=metadata)

    def _volume(self, found: storage.PersistentVolume) -> storage.PersistentVolume:
        given = self._assumed.claim_for(found.metadata.name)
        if given is None or found.spec.claim_ref is not None:
            return found
        namespace, name, uid = given
        kept = storage.ClaimReference(namespace=namespace, name=name, uid=uid)
        spec = msgspec.structs.replace(found.spec, claim_ref=kept)
        return msgspec.structs.replace(found, spec=spec)


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
