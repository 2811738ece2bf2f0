"""The registry of kinds: their API paths and their Structs."""

from typing import Any, Generic, TypeVar

import msgspec

from stromboli.shared import decoding, errors
from stromboli.shared.api import (
    batch,
    coordination,
    core,
    flow,
    meta,
    numa,
    reservation,
    resource,
    scheduling,
    shard,
    storage,
    topology,
)
from stromboli.shared.formats import nesting

T = TypeVar("T", bound=meta.Object)


class Kind(msgspec.Struct, Generic[T], frozen=True, cache_hash=True):
    """A resource of the Kubernetes API, with the Struct that decodes it."""

    group: str
    version: str
    kind: str
    plural: str
    struct: type[T]
    namespaced: bool = True
    status_subresource: bool = True

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of an object, of a namespace's collection or of the whole collection.

        Raises InvalidError for a name that would change the path to another resource.
        """
        for part in (namespace, name):
            if "/" in part or "%" in part or part in (".", ".."):
                raise errors.InvalidError(
                    f"{self.kind} {namespace}/{name}", f"{part!r} is not a valid name"
                )
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            root += f"/namespaces/{namespace}"
        return "/".join(part for part in (root, self.plural, name, subresource) if part)

    def controls(self, obj: meta.Object) -> bool:
        """Whether the object's controller, by its owner references, is of this kind."""
        owner = obj.metadata.controller
        if owner is None or owner.kind != self.kind:
            return False
        return owner.api_version == self.api_version

    def decode(self, raw: bytes | msgspec.Raw) -> T:
        """Decode an object. Raises msgspec.DecodeError, which names the path of the invalid
        field."""
        return decoding.from_json(raw, self.struct)


NODES = Kind("", "v1", "Node", "nodes", core.Node, namespaced=False)
PODS = Kind("", "v1", "Pod", "pods", core.Pod)
PRIORITY_CLASSES = Kind(
    "scheduling.k8s.io",
    "v1",
    "PriorityClass",
    "priorityclasses",
    core.PriorityClass,
    namespaced=False,
    status_subresource=False,
)
POD_GROUPS = Kind(
    "scheduling.volcano.sh",
    "v1beta1",
    "PodGroup",
    "podgroups",
    scheduling.PodGroup,
    status_subresource=False,
)
QUEUES = Kind(
    "scheduling.volcano.sh", "v1beta1", "Queue", "queues", scheduling.Queue, namespaced=False
)
JOBS = Kind("batch.volcano.sh", "v1alpha1", "Job", "jobs", batch.Job)
COMMANDS = Kind(
    "bus.volcano.sh", "v1alpha1", "Command", "commands", batch.Command, status_subresource=False
)
JOB_TEMPLATES = Kind("flow.volcano.sh", "v1alpha1", "JobTemplate", "jobtemplates", flow.JobTemplate)
JOB_FLOWS = Kind("flow.volcano.sh", "v1alpha1", "JobFlow", "jobflows", flow.JobFlow)
CRON_JOBS = Kind("batch.volcano.sh", "v1alpha1", "CronJob", "cronjobs", flow.CronJob)

HYPER_NODES = Kind(
    "topology.volcano.sh",
    "v1alpha1",
    "HyperNode",
    "hypernodes",
    topology.HyperNode,
    namespaced=False,
)

NUMA_TOPOLOGIES = Kind(
    "nodeinfo.volcano.sh",
    "v1alpha1",
    "Numatopology",
    "numatopologies",
    numa.Numatopology,
    namespaced=False,
    status_subresource=False,
)
RESOURCE_QUOTAS = Kind("", "v1", "ResourceQuota", "resourcequotas", core.ResourceQuota)
DISRUPTION_BUDGETS = Kind(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", core.PodDisruptionBudget
)
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", core.Namespace, namespaced=False)
SECRETS = Kind("", "v1", "Secret", "secrets", meta.Object, status_subresource=False)
CONFIG_MAPS = Kind("", "v1", "ConfigMap", "configmaps", meta.Object, status_subresource=False)
PERSISTENT_VOLUMES = Kind(
    "", "v1", "PersistentVolume", "persistentvolumes", storage.PersistentVolume, namespaced=False
)
PERSISTENT_VOLUME_CLAIMS = Kind(
    "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", storage.PersistentVolumeClaim
)


def _storage(kind: str, plural: str, struct: type[T], *, namespaced: bool = False) -> Kind[T]:
    return Kind("storage.k8s.io", "v1", kind, plural, struct, namespaced, status_subresource=False)


STORAGE_CLASSES = _storage("StorageClass", "storageclasses", storage.StorageClass)
CSI_NODES = _storage("CSINode", "csinodes", storage.CSINode)
CSI_DRIVERS = _storage("CSIDriver", "csidrivers", storage.CSIDriver)
CSI_STORAGE_CAPACITIES = _storage(
    "CSIStorageCapacity", "csistoragecapacities", storage.CSIStorageCapacity, namespaced=True
)
DEVICE_CLASSES = Kind(
    "resource.k8s.io",
    "v1",
    "DeviceClass",
    "deviceclasses",
    resource.DeviceClass,
    namespaced=False,
    status_subresource=False,
)
RESOURCE_SLICES = Kind(
    "resource.k8s.io",
    "v1",
    "ResourceSlice",
    "resourceslices",
    resource.ResourceSlice,
    namespaced=False,
    status_subresource=False,
)
RESOURCE_CLAIMS = Kind(
    "resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", resource.ResourceClaim
)
RESOURCE_CLAIM_TEMPLATES = Kind(
    "resource.k8s.io",
    "v1",
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
    resource.ResourceClaimTemplate,
    status_subresource=False,
)
NODE_SHARDS = Kind(
    "shard.volcano.sh",
    "v1alpha1",
    "NodeShard",
    "nodeshards",
    shard.NodeShard,
    namespaced=False,
)
ADVANCE_RESERVATIONS = Kind(
    "scheduling.stromboli.sh",
    "v1alpha1",
    "AdvanceReservation",
    "advancereservations",
    reservation.AdvanceReservation,
    namespaced=False,
    status_subresource=False,
)
SERVICES = Kind("", "v1", "Service", "services", meta.Object)
EVENTS = Kind("", "v1", "Event", "events", meta.Object, status_subresource=False)
NETWORK_POLICIES = Kind(
    "networking.k8s.io",
    "v1",
    "NetworkPolicy",
    "networkpolicies",
    meta.Object,
    status_subresource=False,
)
DEFINITIONS = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    meta.Object,
    namespaced=False,
)
LEASES = Kind(
    "coordination.k8s.io",
    "v1",
    "Lease",
    "leases",
    coordination.Lease,
    status_subresource=False,
)
INGRESSES = Kind("networking.k8s.io", "v1", "Ingress", "ingresses", meta.Object)
DEPLOYMENTS = Kind("apps", "v1", "Deployment", "deployments", meta.Object)
REPLICA_SETS = Kind("apps", "v1", "ReplicaSet", "replicasets", meta.Object)
STATEFUL_SETS = Kind("apps", "v1", "StatefulSet", "statefulsets", meta.Object)
DAEMON_SETS = Kind("apps", "v1", "DaemonSet", "daemonsets", meta.Object)
KUBERNETES_JOBS = Kind("batch", "v1", "Job", "jobs", meta.Object)

MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS = (
    Kind(
        "admissionregistration.k8s.io",
        "v1",
        f"{way}WebhookConfiguration",
        f"{way.lower()}webhookconfigurations",
        meta.Object,
        namespaced=False,
        status_subresource=False,
    )
    for way in ("Mutating", "Validating")
)

VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS, MUTATING_POLICIES = (
    Kind(
        "admissionregistration.k8s.io",
        "v1",
        kind,
        plural,
        meta.Object,
        namespaced=False,
        status_subresource=False,
    )
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
    )
)

WATCHED: tuple[Kind[meta.Object], ...] = (  # type: ignore[assignment]  # Kind is read-only in T
    NODES,
    NAMESPACES,
    PRIORITY_CLASSES,
    QUEUES,
    HYPER_NODES,
    NUMA_TOPOLOGIES,
    RESOURCE_QUOTAS,
    DISRUPTION_BUDGETS,
    STORAGE_CLASSES,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    CSI_NODES,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    RESOURCE_CLAIMS,
    NODE_SHARDS,
    ADVANCE_RESERVATIONS,
    JOB_TEMPLATES,
    JOB_FLOWS,
    CRON_JOBS,
    POD_GROUPS,
    JOBS,
    COMMANDS,
    PODS,
)
"""Kinds that the monitor watches, in the order of the first lists."""

OPTIONAL: frozenset[Kind[Any]] = frozenset(
    {DEVICE_CLASSES, RESOURCE_SLICES, RESOURCE_CLAIMS, NODE_SHARDS, ADVANCE_RESERVATIONS}
)
"""Kinds that an API server may not serve, in which case the cluster has no objects of the kind."""

WRITTEN: tuple[Kind[meta.Object], ...] = (  # type: ignore[assignment]  # as above
    CONFIG_MAPS,
    SECRETS,
    SERVICES,
    EVENTS,
    NETWORK_POLICIES,
    INGRESSES,
    LEASES,
    RESOURCE_CLAIM_TEMPLATES,
)
"""Kinds that no service watches: services write them, or other controllers read them."""

WORKLOADS: tuple[Kind[meta.Object], ...] = (
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    KUBERNETES_JOBS,
)
"""Built-in owners of pods: read by name when their pods name our scheduler."""

WEBHOOKS: tuple[Kind[meta.Object], ...] = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
"""Webhook configurations: admission writes its CA bundle into them."""

POLICIES: tuple[Kind[meta.Object], ...] = (
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    MUTATING_POLICIES,
)
"""Admission policies: the controller reads those that concern pods."""

BY_NAME: dict[tuple[str, str], Kind[meta.Object]] = {
    (kind.api_version, kind.kind): kind
    for kind in (*WATCHED, *WRITTEN, *WORKLOADS, *WEBHOOKS, *POLICIES)
}
"""(apiVersion, kind) as in a manifest -> Kind."""

_OF_THE_CLUSTER = (
    NODES,
    STORAGE_CLASSES,
    PERSISTENT_VOLUMES,
    CSI_NODES,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    NODE_SHARDS,
)
SUBMITTED: tuple[Kind[meta.Object], ...] = tuple(
    kind
    for kind in BY_NAME.values()
    if kind not in (*_OF_THE_CLUSTER, EVENTS, SECRETS, LEASES, *WORKLOADS, *WEBHOOKS, *POLICIES)
)
"""Kinds that users may submit through Stromboli's REST API."""

_METADATA = decoding.decoder_of(meta.Object)


def metadata_of(raw: bytes | msgspec.Raw) -> meta.ObjectMeta:
    """The metadata of any object. Raises msgspec.DecodeError."""
    try:
        return _METADATA.decode(raw).metadata
    except RecursionError:
        return decoding.decode(_METADATA, nesting.outer(bytes(raw), levels=8)).metadata
    except ValueError:
        return decoding.decode(_METADATA, raw).metadata


def name_of(raw: bytes) -> str:
    """The name of any object; empty if it has a generated name or is not an object."""
    try:
        return metadata_of(raw).name
    except msgspec.DecodeError:
        return ""
