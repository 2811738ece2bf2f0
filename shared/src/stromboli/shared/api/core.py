"""Pods, nodes and priority classes: the fields that batch scheduling needs."""

import msgspec

from stromboli.shared.api.meta import Int32, Int64, Object, Part
from stromboli.shared.decoding import Instant

Quantity = str | int | float
"""A quantity. YAML and older clients may write the number ``2`` instead of the text ``"2"``; both
are decoded."""


class ResourceRequirements(Part, frozen=True, kw_only=True):
    """A container's requests and limits."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class ContainerPort(Part, frozen=True, kw_only=True):
    """A port; only ``host_port`` (0: none) occupies a port of the node."""

    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Part, frozen=True, kw_only=True):
    """The fields of a container that determine the pod's requests."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None
    ports: tuple[ContainerPort, ...] = ()


class Toleration(Part, frozen=True, kw_only=True):
    """A taint that the pod tolerates."""

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
    """Expressions that must all match."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(Part, frozen=True, kw_only=True):
    """Terms; at least one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Part, frozen=True, kw_only=True):
    """A preference for nodes, with a weight of 1 to 100."""

    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Part, frozen=True, kw_only=True):
    """Required and preferred nodes of a pod."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class LabelSelector(Part, frozen=True, kw_only=True):
    """Labels and expressions that must all match; an empty selector matches every object."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[SelectorRequirement, ...] = ()


class PodAffinityTerm(Part, frozen=True, kw_only=True):
    """A pod selector and a topology key: nodes with the same value of that label are one domain.

    Without ``label_selector`` no pod matches. Without ``namespaces`` and ``namespace_selector`` the
    term applies to the pod's own namespace.
    """

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Part, frozen=True, kw_only=True):
    """A preferred (anti-)affinity term, with a weight of 1 to 100."""

    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Part, frozen=True, kw_only=True):
    """Required and preferred terms of ``podAffinity`` or ``podAntiAffinity``."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(Part, frozen=True, kw_only=True):
    """Node affinity, pod affinity and pod anti-affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Part, frozen=True, kw_only=True):
    """A limit on how unevenly pods are spread over the values of a node label."""

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
    """A volume with a claim that Kubernetes creates for the pod, named ``<pod>-<volume>``."""


class Volume(Part, frozen=True, kw_only=True):
    """A volume of the pod; only claims affect scheduling."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralVolumeSource | None = None


class PodResourceClaim(Part, frozen=True, kw_only=True):
    """A device claim of a pod: an existing one by name, or one created from a template."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class SchedulingGate(Part, frozen=True, kw_only=True):
    """A gate that must be removed before the pod may be scheduled."""

    name: str


class PodSpec(Part, frozen=True, kw_only=True):
    """The pod's requirements and constraints."""

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
    """How a container terminated."""

    exit_code: Int32 = 0
    reason: str = ""


class ContainerState(Part, frozen=True, kw_only=True):
    """The state of a container; only termination is decoded."""

    terminated: ContainerTerminated | None = None


class ContainerStatus(Part, frozen=True, kw_only=True):
    """The status of one container."""

    name: str = ""
    ready: bool = False
    restart_count: Int32 = 0
    state: ContainerState = ContainerState()


class Condition(Part, frozen=True, kw_only=True):
    """A condition of a pod or node."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Instant | None = None


class PodResourceClaimStatus(Part, frozen=True, kw_only=True):
    """The claim that was created from a template. Without a name, no claim was needed."""

    name: str = ""
    resource_claim_name: str = ""


class PodStatus(Part, frozen=True, kw_only=True):
    """The observed state of the pod."""

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
    """A pod: a task of a job, or any other workload on a node."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(Part, frozen=True, kw_only=True):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(Part, frozen=True, kw_only=True):
    """Taints and other settings that keep pods off the node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ContainerImage(Part, frozen=True, kw_only=True):
    """An image that is present on the node, with all its names."""

    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeStatus(Part, frozen=True, kw_only=True):
    """The node's resources, conditions and images."""

    images: tuple[ContainerImage, ...] = ()

    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    conditions: tuple[Condition, ...] = ()


class Node(Object, frozen=True, kw_only=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PriorityClass(Object, frozen=True, kw_only=True):
    """A named priority."""

    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str = ""


class Namespace(Object, frozen=True, kw_only=True):
    """A namespace; its annotations set defaults for the objects in it."""


class ScopeRequirement(Part, frozen=True, kw_only=True):
    """Which pods a quota counts: by scope, or by priority class."""

    scope_name: str
    operator: str
    values: tuple[str, ...] = ()


class ScopeSelector(Part, frozen=True, kw_only=True):
    """Requirements that must all match."""

    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(Part, frozen=True, kw_only=True):
    """The limits of a namespace or, with scopes, of its pods that match all scopes."""

    hard: dict[str, Quantity] | None = None
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Part, frozen=True, kw_only=True):
    """The limits and the usage, as Kubernetes counts it."""

    hard: dict[str, Quantity] | None = None
    used: dict[str, Quantity] | None = None


class ResourceQuota(Object, frozen=True, kw_only=True):
    """A limit on the resources of a namespace."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class PodDisruptionBudgetSpec(Part, frozen=True, kw_only=True):
    """The selector of the protected pods."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Part, frozen=True, kw_only=True):
    """The remaining allowed disruptions, and pods that are already being disrupted, by name."""

    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(Object, frozen=True, kw_only=True):
    """A limit on concurrent voluntary disruptions of pods."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
