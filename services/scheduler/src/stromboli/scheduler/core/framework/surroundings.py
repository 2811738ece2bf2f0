"""What sessions look at besides nodes, pods, jobs and queues: quotas, budgets, volumes, labels."""

from collections.abc import Mapping
from typing import Any

from stromboli.scheduler.core.framework import cluster
from stromboli.shared.api import core, meta, resource, shard

FIELDS: Mapping[type[meta.Object], str] = {
    core.ResourceQuota: "resource_quotas",
    core.PodDisruptionBudget: "disruption_budgets",
    core.PersistentVolume: "volumes",
    core.PersistentVolumeClaim: "claims",
    core.StorageClass: "storage_classes",
    resource.ResourceClaim: "resource_claims",
    resource.DeviceClass: "device_classes",
    resource.ResourceSlice: "resource_slices",
    shard.NodeShard: "node_shards",
}
"""Struct -> field of ``cluster.Cluster``."""


class Surroundings:
    """Objects by kind and key, as they are now. ``unread``: field -> key -> why it cannot be read.

    Plugins with many objects to look at look them up here; others take them from the session's
    ``cluster``, whose tuples are made anew only for kinds that changed.
    """

    def __init__(self) -> None:
        self.claims: dict[str, core.PersistentVolumeClaim] = {}
        self.volumes: dict[str, core.PersistentVolume] = {}
        self.storage_classes: dict[str, core.StorageClass] = {}
        self.resource_quotas: dict[str, core.ResourceQuota] = {}
        self.disruption_budgets: dict[str, core.PodDisruptionBudget] = {}
        self.resource_claims: dict[str, resource.ResourceClaim] = {}
        self.device_classes: dict[str, resource.DeviceClass] = {}
        self.resource_slices: dict[str, resource.ResourceSlice] = {}
        self.node_shards: dict[str, shard.NodeShard] = {}
        self.namespace_labels: dict[str, Mapping[str, str]] = {}
        self.knows_volumes = True
        """Volumes and claims are seen; else nothing is known of them and nothing hangs on them."""
        self.unread: dict[str, dict[str, str]] = {field: {} for field in FIELDS.values()}
        self._tuples: dict[str, tuple[meta.Object, ...]] = {}

    def put(self, found: meta.Object) -> None:
        """An object as it is now; of a kind in ``FIELDS``."""
        field = FIELDS[type(found)]
        getattr(self, field)[found.metadata.key] = found
        self.unread[field].pop(found.metadata.key, None)
        self._tuples.pop(field, None)

    def lose(self, kind: type[meta.Object], key: str, reason: str) -> None:
        """It is there and cannot be read."""
        self.remove(kind, key)
        self.unread[FIELDS[kind]][key] = reason

    def remove(self, kind: type[meta.Object], key: str) -> None:
        """It is gone."""
        field = FIELDS[kind]
        getattr(self, field).pop(key, None)
        self.unread[field].pop(key, None)
        self._tuples.pop(field, None)

    def seen_with(self, given: cluster.Cluster) -> cluster.Cluster:
        """What a session is given, with the objects here instead of its own."""
        fields: dict[str, Any] = {}
        for field in FIELDS.values():
            if field not in self._tuples:
                objects = getattr(self, field)
                self._tuples[field] = tuple(objects[key] for key in sorted(objects))
            fields[field] = self._tuples[field]
        return cluster.Cluster(
            now=given.now,
            usage=given.usage,
            memory=given.memory,
            namespace_labels=self.namespace_labels,
            **fields,
        )
