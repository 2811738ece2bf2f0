"""Snapshots: the objects of the cluster as the monitor observed them.

The value of a snapshot is the projection of the object. A tombstone is a record without a value;
its headers have the object's uid and resourceVersion.
"""

from typing import Any, Literal, TypeVar

import msgspec

from stromboli.shared.api import (
    batch,
    core,
    flow,
    kinds,
    meta,
    numa,
    reservation,
    resource,
    scheduling,
    shard,
    storage,
    topology,
)
from stromboli.shared.decoding import Instant
from stromboli.shared.messages import base, sharing_decoders
from stromboli.shared.messages.base import Message, is_message, register, type_name

T = TypeVar("T", bound=meta.Object)

register("stromboli.cluster.node_observed.v1")(core.Node)
register("stromboli.cluster.pod_observed.v1", sharing_decoders.PodDecoder())(core.Pod)
register("stromboli.cluster.priority_class_observed.v1")(core.PriorityClass)
register("stromboli.cluster.pod_group_observed.v1", sharing_decoders.PodGroupDecoder())(
    scheduling.PodGroup
)
register("stromboli.cluster.queue_observed.v1")(scheduling.Queue)
register("stromboli.cluster.job_observed.v1", sharing_decoders.JobDecoder())(batch.Job)
register("stromboli.cluster.command_observed.v1")(batch.Command)
register("stromboli.cluster.namespace_observed.v1")(core.Namespace)
register("stromboli.cluster.job_template_observed.v1")(flow.JobTemplate)
register("stromboli.cluster.job_flow_observed.v1")(flow.JobFlow)
register("stromboli.cluster.cron_job_observed.v1")(flow.CronJob)
register("stromboli.cluster.hyper_node_observed.v1")(topology.HyperNode)
register("stromboli.cluster.numa_topology_observed.v1")(numa.Numatopology)
register("stromboli.cluster.resource_quota_observed.v1")(core.ResourceQuota)
register("stromboli.cluster.pod_disruption_budget_observed.v1")(core.PodDisruptionBudget)
register("stromboli.cluster.storage_class_observed.v1")(storage.StorageClass)
register("stromboli.cluster.persistent_volume_observed.v1")(storage.PersistentVolume)
register("stromboli.cluster.persistent_volume_claim_observed.v1")(storage.PersistentVolumeClaim)
register("stromboli.cluster.csi_node_observed.v1")(storage.CSINode)
register("stromboli.cluster.csi_driver_observed.v1")(storage.CSIDriver)
register("stromboli.cluster.csi_storage_capacity_observed.v1")(storage.CSIStorageCapacity)
register("stromboli.cluster.device_class_observed.v1")(resource.DeviceClass)
register("stromboli.cluster.resource_slice_observed.v1")(resource.ResourceSlice)
register("stromboli.cluster.resource_claim_observed.v1")(resource.ResourceClaim)
register("stromboli.cluster.node_shard_observed.v1")(shard.NodeShard)
register("stromboli.cluster.advance_reservation_observed.v1")(reservation.AdvanceReservation)


def decode_object(kind: kinds.Kind[T], raw: bytes) -> T:
    """Decodes a response of the API server as records of its kind are decoded, so that cached
    objects share their equal parts. Raises msgspec.DecodeError.

    Pods are decoded alone: in a response each has a volume with a random name, so no two specs are
    equal, and they would displace those of the records from the table.
    """
    if kind is kinds.PODS or not is_message(kind.struct):
        return kind.decode(raw)
    obj: Any = base.decode(type_name(kind.struct), raw)
    return obj  # type: ignore[no-any-return]  # the type that the name is registered for


GONE = "stromboli.cluster.object_gone.v1"
"""The message type of tombstones."""


@register("stromboli.cluster.object_unreadable.v1")
class Unreadable(Message, frozen=True, kw_only=True):
    """An object exists but cannot be decoded or is too large: its key is *unknown*, never absent.

    ``node``: the node of a pod, if that field can be read; no other pod is placed there.
    """

    uid: str
    resource_version: str
    reason: str
    node: str = ""


UNREADABLE = type_name(Unreadable)
"""The type of records whose object the monitor could not read."""


@register("stromboli.cluster.history_checkpointed.v1")
class HistoryCheckpointed(Message, frozen=True, kw_only=True):
    """The positions of the copied topics up to which ``cluster.changes`` contains their records.

    ``positions``: topic -> the first offset that is not copied yet. ``epochs``: topic -> the
    highest epoch accepted before it. ``topic_ids``: topic -> the id that distinguishes it from a
    later topic of the same name. ``image_offset``: the history is complete from this offset of
    ``cluster.changes``: first an image of the copied topics as of ``imaged_at``, then all later
    records. A copy has the headers ``ce_position``, the offset of the original in its topic, and
    ``ce_cause``, the id of the original. ``unread``: topic -> offsets since the last checkpoint of
    records that no service reads, and that are not copied: announcements of epochs, and records of
    replaced writers.
    """

    positions: dict[str, int]
    image_offset: int
    imaged_at: Instant
    epochs: dict[str, int] = msgspec.field(default_factory=dict)
    topic_ids: dict[str, str] = msgspec.field(default_factory=dict)
    unread: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)


@register("stromboli.cluster.kind_synced.v1")
class KindSynced(Message, frozen=True, kw_only=True):
    """The state of a kind's observation by the monitor (key: the plural of the kind), and its time.

    ``listing``: a full list is in progress; the snapshot may lack deletions. ``synced``: everything
    up to ``resource_version`` is in the snapshot topic before offset ``position``; a topic that
    ends earlier has lost records. ``projection``: digest of the fields that snapshots carry; the
    next monitor lists again if its own differs.
    """

    kind: str
    state: Literal["listing", "synced"]
    resource_version: str
    at: Instant
    position: int = 0
    projection: str = ""


COMPETITORS_KEY = "$competitors"


class Competitor(Message, frozen=True, kw_only=True):
    """Another system that acts on the same API groups, detected by a lease that it holds.
    ``since``: the lease's acquireTime."""

    lease: str
    holder: str
    since: str
    scheduler_name: str


@register("stromboli.cluster.competitors_observed.v1")
class CompetitorsObserved(Message, frozen=True, kw_only=True):
    """Other systems that act for a scheduler name (key ``$competitors``).

    ``unknown``: why that could not be determined, in which case no service of ours acts.
    """

    competitors: tuple[Competitor, ...]
    unknown: str = ""
