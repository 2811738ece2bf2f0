"""scheduling.volcano.sh/v1beta1: PodGroup and Queue."""

import msgspec

from stromboli.shared.api.batch import NetworkTopology
from stromboli.shared.api.core import LabelSelector, Quantity
from stromboli.shared.api.meta import Int32, Object, Part
from stromboli.shared.decoding import Instant


class PodGroupCondition(Part, frozen=True, kw_only=True):
    """Why a gang waits (``Unschedulable``) or that it was placed (``Scheduled``)."""

    type: str
    status: str
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: Instant | None = None
    reason: str = ""
    message: str = ""


class SubGroupPolicy(Part, frozen=True, kw_only=True):
    """Divides a gang: pods that the selector matches form a group for each combination of values
    of the labels. A group needs ``sub_group_size`` pods (1 if unset), the gang ``min_sub_groups``
    whole groups."""

    name: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    sub_group_size: Int32 | None = None
    min_sub_groups: Int32 | None = None
    network_topology: NetworkTopology | None = None


class PodGroupSpec(Part, frozen=True, kw_only=True):
    """The gang: how many members, of which queue, with which priority."""

    min_member: Int32 = 0
    min_task_member: dict[str, Int32] | None = None
    queue: str = "default"
    priority_class_name: str = ""
    min_resources: dict[str, Quantity] | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()
    network_topology: NetworkTopology | None = None


class PodGroupStatus(Part, frozen=True, kw_only=True):
    """Phase Pending, Inqueue, Running, Unknown or Completed, with counts."""

    phase: str = ""
    conditions: tuple[PodGroupCondition, ...] = ()
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0


class PodGroup(Object, frozen=True, kw_only=True):
    """A gang. It has no status subresource: spec and status share one update."""

    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class Guarantee(Part, frozen=True, kw_only=True):
    """What a queue always has."""

    resource: dict[str, Quantity] | None = None


class NodeGroupTerms(Part, frozen=True, kw_only=True):
    """Names of node groups that are needed, or liked the more the earlier they stand."""

    required_during_scheduling_ignored_during_execution: tuple[str, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[str, ...] = ()


class QueueAffinity(Part, frozen=True, kw_only=True):
    """Groups of nodes that a queue's pods go to, and those that they stay off."""

    node_group_affinity: NodeGroupTerms = NodeGroupTerms()
    node_group_anti_affinity: NodeGroupTerms = NodeGroupTerms()


class QueueSpec(Part, frozen=True, kw_only=True):
    """A queue's share of the cluster."""

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
    """State Open, Closed, Closing or Unknown, empty reads as Open; its PodGroups by phase; and what
    its pods and those of queues below hold."""

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
