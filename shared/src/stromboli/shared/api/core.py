"""Pods, nodes and priority classes, as far as batch scheduling looks at them."""

import msgspec

from stromboli.shared.api.meta import Int32, Int64, Object, Part
from stromboli.shared.decoding import Instant

Quantity = str | int | float
"""YAML and older clients write ``cpu: 2``; it reads the same as ``"2"``."""


class ResourceRequirements(Part, frozen=True, kw_only=True):
    """What a container asks for and may use at most."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class ContainerPort(Part, frozen=True, kw_only=True):
    """A port; only ``host_port`` (0: none) takes something of the node."""

    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Part, frozen=True, kw_only=True):
    """A container's share in the pod's request."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None
    ports: tuple[ContainerPort, ...] = ()


class Toleration(Part, frozen=True, kw_only=True):
    """A taint that the pod accepts."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SelectorRequirement(Part, frozen=True, kw_only=True):
    """``key operator values``, with In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Part, frozen=True, kw_only=True):
    """All of its expressions must hold."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(Part, frozen=True, kw_only=True):
    """Any one of its terms is enough."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Part, frozen=True, kw_only=True):
    """A wish for nodes, of weight 1 to 100."""

    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Part, frozen=True, kw_only=True):
    """Nodes that a pod needs, and those it likes."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class LabelSelector(Part, frozen=True, kw_only=True):
    """Which labels are meant: all of it must hold; an empty selector means every object."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[SelectorRequirement, ...] = ()


class PodAffinityTerm(Part, frozen=True, kw_only=True):
    """Pods, and the node label whose equal values make two nodes one place.

    An absent ``label_selector`` means no pod. ``namespaces`` and ``namespace_selector`` both
    absent: the pod's own namespace.
    """

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Part, frozen=True, kw_only=True):
    """A wish to be near pods, or away from them, of weight 1 to 100."""

    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Part, frozen=True, kw_only=True):
    """Pods to be near (as ``podAffinity``) or away from (as ``podAntiAffinity``)."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(Part, frozen=True, kw_only=True):
    """Where a pod wants to be."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Part, frozen=True, kw_only=True):
    """How evenly pods lie over the values of a node label."""

    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class PersistentVolumeClaimSource(Part, frozen=True, kw_only=True):
    """A claim by name, in the pod's namespace."""

    claim_name: str = ""


class EphemeralVolumeSource(Part, frozen=True, kw_only=True):
    """A claim made for the pod alone, named ``<pod>-<volume>``."""


class Volume(Part, frozen=True, kw_only=True):
    """A volume of the pod; only claims matter to scheduling."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralVolumeSource | None = None


class PodResourceClaim(Part, frozen=True, kw_only=True):
    """Devices of a pod: a claim by name, or one made for the pod from a template."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class SchedulingGate(Part, frozen=True, kw_only=True):
    """Something a pod waits for before it may be scheduled."""

    name: str


class PodSpec(Part, frozen=True, kw_only=True):
    """What a pod needs and where it may run."""

    node_name: str = ""
    scheduler_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    restart_policy: str = "Always"
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, Quantity] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None


class ContainerTerminated(Part, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: Int32 = 0
    reason: str = ""


class ContainerState(Part, frozen=True, kw_only=True):
    """Only an end is of interest."""

    terminated: ContainerTerminated | None = None


class ContainerStatus(Part, frozen=True, kw_only=True):
    """One container's life so far."""

    name: str = ""
    ready: bool = False
    restart_count: Int32 = 0
    state: ContainerState = ContainerState()


class Condition(Part, frozen=True, kw_only=True):
    """A condition as users see it on pods and nodes."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Instant | None = None


class PodResourceClaimStatus(Part, frozen=True, kw_only=True):
    """The claim that was made from a template; no name: none is needed."""

    name: str = ""
    resource_claim_name: str = ""


class PodStatus(Part, frozen=True, kw_only=True):
    """What became of the pod."""

    phase: str = ""
    reason: str = ""
    start_time: Instant | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()


class Pod(Object, frozen=True, kw_only=True):
    """A pod: one task of a job, or somebody else's use of a node."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(Part, frozen=True, kw_only=True):
    """Why pods should stay off a node."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(Part, frozen=True, kw_only=True):
    """What keeps pods off the node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ContainerImage(Part, frozen=True, kw_only=True):
    """An image that lies on the node, under all its names."""

    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeStatus(Part, frozen=True, kw_only=True):
    """What the node has."""

    images: tuple[ContainerImage, ...] = ()

    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    conditions: tuple[Condition, ...] = ()


class Node(Object, frozen=True, kw_only=True):
    """A machine."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PriorityClass(Object, frozen=True, kw_only=True):
    """A named priority."""

    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str = ""


class Namespace(Object, frozen=True, kw_only=True):
    """Where objects of users stand; its annotations say what holds for all of them."""


class ScopeRequirement(Part, frozen=True, kw_only=True):
    """Which pods a quota counts: those of a scope, or of priority classes."""

    scope_name: str
    operator: str
    values: tuple[str, ...] = ()


class ScopeSelector(Part, frozen=True, kw_only=True):
    """All of these have to hold."""

    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(Part, frozen=True, kw_only=True):
    """What a namespace may hold at most; with scopes, of the pods in all of them."""

    hard: dict[str, Quantity] | None = None
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Part, frozen=True, kw_only=True):
    """What it may hold, and holds, as the API server counts."""

    hard: dict[str, Quantity] | None = None
    used: dict[str, Quantity] | None = None


class ResourceQuota(Object, frozen=True, kw_only=True):
    """A namespace's limit."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class PodDisruptionBudgetSpec(Part, frozen=True, kw_only=True):
    """Whose disruption is limited."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Part, frozen=True, kw_only=True):
    """How many more may be disrupted; pods already being disrupted, by name."""

    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(Object, frozen=True, kw_only=True):
    """How many pods may be taken away at once."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
