"""Volumes, who claims them and how they come to be, as far as placing pods looks at them."""

from stromboli.shared.api.core import LabelSelector, NodeSelector, Quantity, ResourceRequirements
from stromboli.shared.api.meta import Int64, Object, Part

LATE = "WaitForFirstConsumer"
"""The binding mode of classes whose claims are bound once a pod's node is chosen."""


class VolumeNodeAffinity(Part, frozen=True, kw_only=True):
    """Nodes that reach a volume."""

    required: NodeSelector | None = None


class ClaimReference(Part, frozen=True, kw_only=True):
    """The claim that a volume is for; without a uid any of this name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class CSIVolume(Part, frozen=True, kw_only=True):
    """Who attaches a volume, and its name there."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(Part, frozen=True, kw_only=True):
    """A volume's size and reach."""

    capacity: dict[str, Quantity] | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    storage_class_name: str = ""
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolume | None = None


class PersistentVolumeStatus(Part, frozen=True, kw_only=True):
    """Available, Bound, Released or Failed; empty is as good as Available."""

    phase: str = ""


class PersistentVolume(Object, frozen=True, kw_only=True):
    """A volume, cluster scoped."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class PersistentVolumeClaimSpec(Part, frozen=True, kw_only=True):
    """What is asked for; ``volume_name`` once bound."""

    resources: ResourceRequirements = ResourceRequirements()
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    storage_class_name: str | None = None
    selector: LabelSelector | None = None
    volume_name: str = ""


class PersistentVolumeClaimStatus(Part, frozen=True, kw_only=True):
    """``Bound`` once claim and volume name each other."""

    phase: str = ""


class PersistentVolumeClaim(Object, frozen=True, kw_only=True):
    """A pod's claim to a volume."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class TopologyRequirement(Part, frozen=True, kw_only=True):
    """A node label and the values that will do."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Part, frozen=True, kw_only=True):
    """All of it must hold."""

    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Object, frozen=True, kw_only=True):
    """How volumes of a class come to be; ``allowed_topologies``: where, none meaning anywhere."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class VolumeLimit(Part, frozen=True, kw_only=True):
    """How many volumes of a driver a node can attach; None: nothing says."""

    count: Int64 | None = None


class CSINodeDriver(Part, frozen=True, kw_only=True):
    """A driver that runs on a node."""

    name: str = ""
    allocatable: VolumeLimit = VolumeLimit()


class CSINodeSpec(Part, frozen=True, kw_only=True):
    """All drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object, frozen=True, kw_only=True):
    """What drivers say of the node of this name; cluster scoped."""

    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Part, frozen=True, kw_only=True):
    """``storage_capacity``: the driver says where how much is left, and counts on being asked."""

    storage_capacity: bool = False


class CSIDriver(Object, frozen=True, kw_only=True):
    """A driver, under its provisioner's name; cluster scoped."""

    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Object, frozen=True, kw_only=True):
    """How much is left for a class on some nodes; no ``node_topology`` means none.

    ``maximum_volume_size``: the largest volume, if the driver says; else ``capacity`` bounds it.
    """

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None
