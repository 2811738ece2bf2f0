"""Every topic: its key, its messages, its retention, and its only writer."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from stromboli.shared.api import batch as batch_api
from stromboli.shared.api import (
    core,
    flow,
    kinds,
    numa,
    reservation,
    resource,
    scheduling,
    shard,
    storage,
    topology,
)
from stromboli.shared.messages import (
    admission,
    batch,
    cluster,
    data,
    log,
    node_topology,
    node_usage,
    plans,
    what_if,
)
from stromboli.shared.messages import scheduling as messages

Service = Literal["admission", "controller", "history", "monitor", "scheduler"]
OUTSIDE: Literal["outside"] = "outside"
"""The writer of topics to which only external clients append, any number of them."""
UNREPLACED: frozenset[str | None] = frozenset({None, OUTSIDE, "admission"})
"""Writers that act concurrently, such as admission's replicas: a later one does not replace an
earlier one.
"""
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
RECORD_BYTES = 8 * 1024 * 1024
"""Maximum size of a record: an object of 1.5 MB grows by JSON escapes and headers."""

COMPACTION_LAG_MS = 60_000
"""Age until which compaction keeps every record: the history (``cluster.changes``) copies records
within a second or two, and would never have the versions that compaction removes before."""
_COMPACTED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(COMPACTION_LAG_MS),
    "segment.ms": "600000",
    "segment.bytes": str(64 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": str(HOUR_MS),
    "max.message.bytes": str(RECORD_BYTES),
}
_KEPT_AN_HOUR: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": str(HOUR_MS),
    "segment.ms": "600000",
    "max.message.bytes": str(RECORD_BYTES),
}
_KEPT_14_DAYS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": str(14 * DAY_MS),
    "max.message.bytes": str(RECORD_BYTES),
}


class Topic(msgspec.Struct, frozen=True):
    """One topic of one partition.

    ``writer`` is the only service that appends to it. None means all our services
    (``dead.letters``), ``OUTSIDE`` means external clients only. ``main`` topics carry their
    writer's ``opened`` records, which determine its epochs. ``stable`` topics are an interface for
    integrations.
    """

    name: str
    key: str
    messages: tuple[type[msgspec.Struct], ...]
    settings: Mapping[str, str]
    writer: Service | Literal["outside"] | None
    main: bool = False
    stable: bool = False

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_compacted(self) -> bool:
        """Whether the topic is compacted, so that only the last record of each key is guaranteed to
        be retained."""
        return self.settings["cleanup.policy"] == "compact"

    @property
    def is_fenced(self) -> bool:
        """Whether a later writer of the topic fences earlier ones."""
        return self.writer not in UNREPLACED

    @property
    def is_announced(self) -> bool:
        """Whether a writer's first record announces its epoch; on the main topic ``opened``
        does.
        """
        return self.is_fenced and not self.main

    @property
    def carries(self) -> tuple[type[msgspec.Struct], ...]:
        """The messages of the topic, including those of the log itself."""
        return (*self.messages, log.EpochAnnounced) if self.is_announced else self.messages

    def full_name(self, cluster_name: str) -> str:
        """The name on the broker, unique among clusters that share it."""
        return f"{cluster_name}.{self.name}"


def _snapshot(name: str, struct: type[msgspec.Struct], key: str = "namespace/name") -> Topic:
    return Topic(
        f"cluster.{name}", key, (struct, cluster.Unreadable), _COMPACTED, "monitor", stable=True
    )


NODES = _snapshot("nodes", core.Node, key="name")
PODS = _snapshot("pods", core.Pod)
NAMESPACES = _snapshot("namespaces", core.Namespace, key="name")
PRIORITY_CLASSES = _snapshot("priorityclasses", core.PriorityClass, key="name")
POD_GROUPS = _snapshot("podgroups", scheduling.PodGroup)
QUEUES = _snapshot("queues", scheduling.Queue, key="name")
JOBS = _snapshot("jobs", batch_api.Job)
COMMANDS = _snapshot("commands", batch_api.Command)
JOB_TEMPLATES = _snapshot("jobtemplates", flow.JobTemplate)
JOB_FLOWS = _snapshot("jobflows", flow.JobFlow)
CRON_JOBS = _snapshot("cronjobs", flow.CronJob)
HYPER_NODES = _snapshot("hypernodes", topology.HyperNode, key="name")
NUMA_TOPOLOGIES = _snapshot("numatopologies", numa.Numatopology, key="name")
RESOURCE_QUOTAS = _snapshot("resourcequotas", core.ResourceQuota)
DISRUPTION_BUDGETS = _snapshot("poddisruptionbudgets", core.PodDisruptionBudget)
TOPOLOGY = Topic(
    "cluster.topology",
    "node",
    (node_topology.TopologyObserved,),
    _COMPACTED,
    "monitor",
    stable=True,
)
DATA = Topic(
    "cluster.data",
    "node",
    (data.DataObserved,),
    _COMPACTED,
    "monitor",
    stable=True,
)
USAGE = Topic(
    "cluster.usage",
    "node",
    (node_usage.UsageObserved,),
    _COMPACTED,
    "monitor",
    stable=True,
)
POD_USAGE = Topic(
    "cluster.podusage",
    "node",
    (node_usage.PodUsageMeasured,),
    _KEPT_14_DAYS,
    "monitor",
    stable=True,
)
STORAGE_CLASSES = _snapshot("storageclasses", storage.StorageClass, key="name")
PERSISTENT_VOLUMES = _snapshot("persistentvolumes", storage.PersistentVolume, key="name")
PERSISTENT_VOLUME_CLAIMS = _snapshot("persistentvolumeclaims", storage.PersistentVolumeClaim)
CSI_NODES = _snapshot("csinodes", storage.CSINode, key="name")
CSI_DRIVERS = _snapshot("csidrivers", storage.CSIDriver, key="name")
CSI_STORAGE_CAPACITIES = _snapshot("csistoragecapacities", storage.CSIStorageCapacity)
DEVICE_CLASSES = _snapshot("deviceclasses", resource.DeviceClass, key="name")
RESOURCE_SLICES = _snapshot("resourceslices", resource.ResourceSlice, key="name")
RESOURCE_CLAIMS = _snapshot("resourceclaims", resource.ResourceClaim)
NODE_SHARDS = _snapshot("nodeshards", shard.NodeShard, key="name")
ADVANCE_RESERVATIONS = _snapshot("advancereservations", reservation.AdvanceReservation, key="name")
SNAPSHOTS: Mapping[kinds.Kind, Topic] = {  # type: ignore[type-arg]  # kinds of any object
    kinds.NODES: NODES,
    kinds.NAMESPACES: NAMESPACES,
    kinds.PRIORITY_CLASSES: PRIORITY_CLASSES,
    kinds.QUEUES: QUEUES,
    kinds.HYPER_NODES: HYPER_NODES,
    kinds.NUMA_TOPOLOGIES: NUMA_TOPOLOGIES,
    kinds.RESOURCE_QUOTAS: RESOURCE_QUOTAS,
    kinds.DISRUPTION_BUDGETS: DISRUPTION_BUDGETS,
    kinds.STORAGE_CLASSES: STORAGE_CLASSES,
    kinds.PERSISTENT_VOLUMES: PERSISTENT_VOLUMES,
    kinds.PERSISTENT_VOLUME_CLAIMS: PERSISTENT_VOLUME_CLAIMS,
    kinds.CSI_NODES: CSI_NODES,
    kinds.CSI_DRIVERS: CSI_DRIVERS,
    kinds.CSI_STORAGE_CAPACITIES: CSI_STORAGE_CAPACITIES,
    kinds.DEVICE_CLASSES: DEVICE_CLASSES,
    kinds.RESOURCE_SLICES: RESOURCE_SLICES,
    kinds.RESOURCE_CLAIMS: RESOURCE_CLAIMS,
    kinds.NODE_SHARDS: NODE_SHARDS,
    kinds.ADVANCE_RESERVATIONS: ADVANCE_RESERVATIONS,
    kinds.JOB_TEMPLATES: JOB_TEMPLATES,
    kinds.JOB_FLOWS: JOB_FLOWS,
    kinds.CRON_JOBS: CRON_JOBS,
    kinds.POD_GROUPS: POD_GROUPS,
    kinds.JOBS: JOBS,
    kinds.COMMANDS: COMMANDS,
    kinds.PODS: PODS,
}
"""Kind -> its snapshot topic."""
MATERIALIZED: tuple[Topic, ...] = (*SNAPSHOTS.values(), TOPOLOGY, DATA, USAGE)
"""Topics of cluster objects that sessions materialize."""
BATCH_PLANS = Topic("batch.plans", "PodGroup", (plans.PodsPlanned,), _COMPACTED, "controller")
COPIED: tuple[Topic, ...] = (*MATERIALIZED, BATCH_PLANS)
"""Compacted topics on which decisions depend. ``cluster.changes`` has a copy of each record."""
CHANGES = Topic(
    "cluster.changes",
    "topic/its key, or $kept",
    (
        *dict.fromkeys(message for topic in COPIED for message in topic.messages),
        cluster.HistoryCheckpointed,
    ),
    _KEPT_14_DAYS,
    "monitor",
)
SYNC = Topic(
    "cluster.sync",
    "plural of the kind, or $competitors",
    (cluster.KindSynced, cluster.CompetitorsObserved, log.Opened),
    _COMPACTED,
    "monitor",
    main=True,
)
DECISIONS = Topic(
    "scheduling.decisions",
    "PodGroup, or $session",
    (messages.StatementDecided, messages.SessionRecorded, log.Opened),
    _KEPT_14_DAYS,
    "scheduler",
    main=True,
    stable=True,
)
EXPLANATIONS = Topic(
    "scheduling.explanations",
    "PodGroup, queue//name//chunk, forecast//scope//chunk, or sessions",
    (
        messages.PodGroupExplained,
        messages.QueueOrdered,
        messages.StartsForecast,
        messages.SessionsMeasured,
    ),
    _COMPACTED,
    "scheduler",
    stable=True,
)
QUESTIONS = Topic(
    "scheduling.questions", "question", (what_if.WhatIfAsked,), _KEPT_AN_HOUR, "admission"
)
FORECAST_ANSWERS = Topic(
    "scheduling.answers", "question", (what_if.WhatIfAnswered,), _KEPT_AN_HOUR, "scheduler"
)
DATA_WANTED = Topic(
    "scheduling.data", "node", (data.DataWanted,), _COMPACTED, "scheduler", stable=True
)
LEASE = Topic("scheduling.lease", "$lease", (messages.LeaseRenewed,), _COMPACTED, "scheduler")
OUTCOMES = Topic(
    "scheduling.outcomes",
    "decision",
    (messages.DecisionAnswered, log.Opened),
    _KEPT_14_DAYS,
    "controller",
    main=True,
    stable=True,
)
BATCH_EVENTS = Topic(
    "batch.events",
    "job",
    (batch.JobPhaseChanged, batch.TaskChanged, batch.JobDeleted, batch.CommandAccepted),
    _KEPT_14_DAYS,
    "controller",
    stable=True,
)
BATCH_STATE = Topic(
    "batch.state",
    "job, job//chunk//part//task, or $position",
    (batch.PublishedJob, batch.PublishedTaskChunk, batch.StatePosition),
    _COMPACTED,
    "controller",
)
SUBMISSIONS = Topic(
    "admission.submissions",
    "any; records of one key are processed in order",
    (admission.ObjectsSubmitted,),
    {
        "cleanup.policy": "delete",
        # The longest time that admission may be unavailable: a submission that is deleted unread
        # never gets an answer. Tokens in these records are valid for an hour at most.
        "retention.ms": str(7 * DAY_MS),
        "segment.ms": str(DAY_MS),
        "max.message.bytes": str(RECORD_BYTES),
        # Not the producers' compression: our client lacks most codecs, and the limit of the size
        # of a record applies to its bytes as they are read.
        "compression.type": "uncompressed",
    },
    OUTSIDE,
    stable=True,
)
REVIEWS = Topic(
    "admission.reviews",
    "object, job, or submission",
    (
        admission.ObjectReviewed,
        admission.JobRequested,
        admission.SubmissionAnswered,
        log.Opened,
    ),
    _KEPT_14_DAYS,
    "admission",
    main=True,
)
ANSWERS = Topic(
    "admission.answers",
    "idempotency key",
    (admission.RequestAnswered,),
    {**_KEPT_14_DAYS, "retention.ms": str(DAY_MS)},
    "admission",
)
DEAD_LETTERS = Topic("dead.letters", "original topic", (log.DeadLetter,), _KEPT_14_DAYS, None)

ALL: tuple[Topic, ...] = (
    *SNAPSHOTS.values(),
    CHANGES,
    TOPOLOGY,
    DATA,
    USAGE,
    POD_USAGE,
    SYNC,
    DECISIONS,
    EXPLANATIONS,
    QUESTIONS,
    FORECAST_ANSWERS,
    LEASE,
    DATA_WANTED,
    OUTCOMES,
    BATCH_EVENTS,
    BATCH_STATE,
    BATCH_PLANS,
    SUBMISSIONS,
    REVIEWS,
    ANSWERS,
    DEAD_LETTERS,
)

MAIN: Mapping[Service, Topic] = {
    topic.writer: topic
    for topic in ALL
    if topic.main and topic.writer is not None and topic.writer != OUTSIDE
}
"""Service -> the topic that carries its ``opened`` records. The history has none: it writes dead
letters only, which need no fencing."""


def of(service: Service) -> tuple[Topic, ...]:
    """The topics that only this service appends to, the main one first."""
    return tuple(
        sorted((each for each in ALL if each.writer == service), key=lambda it: not it.main)
    )
