"""Pods, nodes and priority classes, as far as batch scheduling looks at them."""

from datetime import datetime

from stromboli.shared.api.meta import Object, Part

Quantity = str | int | float
"""YAML and older clients write ``cpu: 2``; it reads the same as ``"2"``."""


class ResourceRequirements(Part, frozen=True, kw_only=True):
    """What a container asks for and may use at most."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class Container(Part, frozen=True, kw_only=True):
    """A container's share in the pod's request."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None


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


class NodeAffinity(Part, frozen=True, kw_only=True):
    """Nodes that a pod needs."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(Part, frozen=True, kw_only=True):
    """Where a pod wants to be."""

    node_affinity: NodeAffinity | None = None


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
    priority: int | None = None
    priority_class_name: str = ""
    restart_policy: str = "Always"
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, Quantity] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    termination_grace_period_seconds: int | None = None


class ContainerTerminated(Part, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""


class ContainerState(Part, frozen=True, kw_only=True):
    """Only an end is of interest."""

    terminated: ContainerTerminated | None = None


class ContainerStatus(Part, frozen=True, kw_only=True):
    """One container's life so far."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class Condition(Part, frozen=True, kw_only=True):
    """A condition as users see it on pods and nodes."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class PodStatus(Part, frozen=True, kw_only=True):
    """What became of the pod."""

    phase: str = ""
    reason: str = ""
    start_time: datetime | None = None
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


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


class NodeStatus(Part, frozen=True, kw_only=True):
    """What the node has."""

    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    conditions: tuple[Condition, ...] = ()


class Node(Object, frozen=True, kw_only=True):
    """A machine."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PriorityClass(Object, frozen=True, kw_only=True):
    """A named priority."""

    value: int = 0
    global_default: bool = False
