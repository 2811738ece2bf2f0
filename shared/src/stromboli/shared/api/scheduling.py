"""scheduling.volcano.sh/v1beta1: PodGroup and Queue."""

import msgspec

from stromboli.shared.api.batch import NetworkTopology
from stromboli.shared.api.core import LabelSelector, Quantity
from stromboli.shared.api.meta import Int32, Object, Part
from stromboli.shared.decoding import Instant


class PodGroupCondition(Part, frozen=True, kw_only=True):
    """Why a gang is pending (``Unschedulable``), or that it was placed (``Scheduled``)."""

    type: str
    status: str
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: Instant | None = None
    reason: str = ""
    message: str = ""


class SubGroupPolicy(Part, frozen=True, kw_only=True):
    """Divides a gang: pods that match the selector form one sub-group for each combination of
    values of the labels. A sub-group needs ``sub_group_size`` pods (1 if unset), the gang
    ``min_sub_groups`` complete sub-groups.
    """

    name: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    sub_group_size: Int32 | None = None
    min_sub_groups: Int32 | None = None
    network_topology: NetworkTopology | None = None


class PodGroupSpec(Part, frozen=True, kw_only=True):
    """The gang: its minimum members, queue and priority."""

    min_member: Int32 = 0
    min_task_member: dict[str, Int32] | None = None
    queue: str = "default"
    priority_class_name: str = ""
    min_resources: dict[str, Quantity] | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()
    network_topology: NetworkTopology | None = None


class PodGroupStatus(Part, frozen=True, kw_only=True):
    """Phase Pending, Inqueue, Running, Unknown or Completed, with pod counts."""

    phase: str = ""
    conditions: tuple[PodGroupCondition, ...] = ()
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0


class PodGroup(Object, frozen=True, kw_only=True):
    """A gang. It has no status subresource: one update writes spec and status."""

    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class Guarantee(Part, frozen=True, kw_only=True):
    """The resources that are reserved for a queue."""

    resource: dict[str, Quantity] | None = None


class NodeGroupTerms(Part, frozen=True, kw_only=True):
    """Names of required node groups, and of preferred ones in descending order of preference."""

    required_during_scheduling_ignored_during_execution: tuple[str, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[str, ...] = ()


class QueueAffinity(Part, frozen=True, kw_only=True):
    """Node groups that a queue's pods may use, and node groups that they avoid."""

    node_group_affinity: NodeGroupTerms = NodeGroupTerms()
    node_group_anti_affinity: NodeGroupTerms = NodeGroupTerms()


class QueueSpec(Part, frozen=True, kw_only=True):
    """A queue's guarantee, deserved share, capability and policies."""

    weight: Int32 = 1
    capability: dict[str, Quantity] | None = None
    deserved: dict[str, Quantity] | None = None
    guarantee: Guarantee = Guarantee()
    reclaimable: bool | None = None
    parent: str = ""
    priority: Int32 = 0
    affinity: QueueAffinity | None = None
    dequeue_strategy: str = ""


class QueueStatus(Part, frozen=True, kw_only=True):
    """State Open, Closed, Closing or Unknown (empty means Open); PodGroup counts by phase; and the
    usage of the queue, including child queues.
    """

    state: str = ""
    pending: Int32 = 0
    inqueue: Int32 = 0
    running: Int32 = 0
    unknown: Int32 = 0
    completed: Int32 = 0
    allocated: dict[str, Quantity] | None = None


class Queue(Object, frozen=True, kw_only=True):
    """A queue, cluster scoped."""

    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
