"""Volumes, claims and storage classes: the fields that scheduling needs."""

from stromboli.shared.api.core import LabelSelector, NodeSelector, Quantity, ResourceRequirements
from stromboli.shared.api.meta import Int64, Object, Part

LATE = "WaitForFirstConsumer"
"""The binding mode of classes whose claims are bound after a pod's node is chosen."""


class VolumeNodeAffinity(Part, frozen=True, kw_only=True):
    """Nodes from which a volume is accessible."""

    required: NodeSelector | None = None


class ClaimReference(Part, frozen=True, kw_only=True):
    """The claim that a volume is reserved for; without a uid, any claim of this name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class CSIVolume(Part, frozen=True, kw_only=True):
    """The driver that attaches a volume, and the driver's handle of it."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(Part, frozen=True, kw_only=True):
    """A volume's capacity, class and node affinity."""

    capacity: dict[str, Quantity] | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    storage_class_name: str = ""
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolume | None = None


class PersistentVolumeStatus(Part, frozen=True, kw_only=True):
    """The volume's phase: Available, Bound, Released or Failed; empty counts as Available."""

    phase: str = ""


class PersistentVolume(Object, frozen=True, kw_only=True):
    """A volume, cluster scoped."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class PersistentVolumeClaimSpec(Part, frozen=True, kw_only=True):
    """The requested storage; ``volume_name`` is set once bound."""

    resources: ResourceRequirements = ResourceRequirements()
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    storage_class_name: str | None = None
    selector: LabelSelector | None = None
    volume_name: str = ""


class PersistentVolumeClaimStatus(Part, frozen=True, kw_only=True):
    """The claim's phase: ``Bound`` once claim and volume refer to each other."""

    phase: str = ""


class PersistentVolumeClaim(Object, frozen=True, kw_only=True):
    """A pod's claim to a volume."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class TopologyRequirement(Part, frozen=True, kw_only=True):
    """A node label and its allowed values."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Part, frozen=True, kw_only=True):
    """Requirements that must all match."""

    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Object, frozen=True, kw_only=True):
    """How volumes of a class are provisioned. ``allowed_topologies``: where; empty means
    anywhere.
    """

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class VolumeLimit(Part, frozen=True, kw_only=True):
    """How many volumes of a driver a node can attach; None: no limit is known."""

    count: Int64 | None = None


class CSINodeDriver(Part, frozen=True, kw_only=True):
    """A driver that runs on a node."""

    name: str = ""
    allocatable: VolumeLimit = VolumeLimit()


class CSINodeSpec(Part, frozen=True, kw_only=True):
    """All drivers of a node. Kubelets write ``null`` if there is none."""

    drivers: tuple[CSINodeDriver, ...] | None = ()


class CSINode(Object, frozen=True, kw_only=True):
    """The CSI drivers of the node of this name; cluster scoped."""

    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Part, frozen=True, kw_only=True):
    """``storage_capacity``: whether the driver publishes capacities per node, which the scheduler
    must check.
    """

    storage_capacity: bool = False


class CSIDriver(Object, frozen=True, kw_only=True):
    """A CSI driver, named like its provisioner; cluster scoped."""

    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Object, frozen=True, kw_only=True):
    """The remaining capacity of a class on some nodes; no ``node_topology`` means no nodes.

    ``maximum_volume_size``: the largest volume, if the driver reports it; otherwise ``capacity`` is
    the limit.
    """

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None
