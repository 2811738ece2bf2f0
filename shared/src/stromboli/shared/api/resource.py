"""resource.k8s.io/v1: devices, where they are and who claims them."""

from typing import Any

import msgspec

from stromboli.shared.api.core import NodeSelector, Quantity
from stromboli.shared.api.meta import Int64, Object, ObjectMeta, Part


class CelSelector(Part, frozen=True, kw_only=True):
    """A condition on ``device`` in the Common Expression Language."""

    expression: str = ""


class DeviceSelector(Part, frozen=True, kw_only=True):
    """Which devices are meant."""

    cel: CelSelector | None = None


class OpaqueConfiguration(Part, frozen=True, kw_only=True):
    """What only a driver understands."""

    driver: str = ""
    parameters: dict[str, Any] | None = None


class DeviceConfiguration(Part, frozen=True, kw_only=True):
    """For the devices of these requests; none named: of all."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceClassSpec(Part, frozen=True, kw_only=True):
    """All selectors must hold."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()


class DeviceClass(Object, frozen=True, kw_only=True):
    """A kind of device under a name that claims use; cluster scoped."""

    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequests(Part, frozen=True, kw_only=True):
    """How much of each device's capacity is meant."""

    requests: dict[str, Quantity] | None = None


class ExactRequest(Part, frozen=True, kw_only=True):
    """Devices of one class. ``count`` 0 means 1; mode ``All`` means every one of a node."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: Int64 = 0
    admin_access: bool = False
    capacity: CapacityRequests = CapacityRequests()


class SubRequest(Part, frozen=True, kw_only=True):
    """One of several ways to satisfy a request."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: Int64 = 0
    capacity: CapacityRequests = CapacityRequests()


class DeviceRequest(Part, frozen=True, kw_only=True):
    """Devices under a name: exactly these, or the first of several that can be had."""

    name: str = ""
    exactly: ExactRequest | None = None
    first_available: tuple[SubRequest, ...] = ()


class DeviceConstraint(Part, frozen=True, kw_only=True):
    """Devices of these requests (none named: of all) must agree on an attribute, or differ."""

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class DeviceClaim(Part, frozen=True, kw_only=True):
    """What is asked for, all of it on one node."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()


class ResourceClaimSpec(Part, frozen=True, kw_only=True):
    """A claim's wish."""

    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Part, frozen=True, kw_only=True):
    """A device that a claim has. With admin access it stays free for others."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False


class AllocatedConfiguration(DeviceConfiguration, frozen=True, kw_only=True):
    """A configuration, and whether it is ``FromClass`` or ``FromClaim``."""

    source: str = ""


class AllocationDevices(Part, frozen=True, kw_only=True):
    """All devices of a claim, and what drivers are told of them."""

    results: tuple[AllocatedDevice, ...] = ()
    config: tuple[AllocatedConfiguration, ...] = ()


class Allocation(Part, frozen=True, kw_only=True):
    """What a claim got, and the nodes that reach it; no selector means all nodes."""

    devices: AllocationDevices = AllocationDevices()
    node_selector: NodeSelector | None = None


class ClaimConsumer(Part, frozen=True, kw_only=True):
    """Who uses a claim; ``resource`` is ``pods`` for pods."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Part, frozen=True, kw_only=True):
    """Absent allocation: the claim still waits. Only who it is reserved for may use it."""

    allocation: Allocation | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()


class ResourceClaim(Object, frozen=True, kw_only=True):
    """Devices for one pod, or shared by several."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Part, frozen=True, kw_only=True):
    """The claim that is created for each pod; ``metadata`` holds its labels and annotations."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Object, frozen=True, kw_only=True):
    """A template from which Kubernetes creates a claim for each pod that names it."""

    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceAttribute(Part, frozen=True, kw_only=True):
    """A fact of a device; one of the fields is set."""

    int_: Int64 | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None

    @property
    def value(self) -> int | bool | str | None:
        """Whatever it says."""
        said = (self.int_, self.bool_, self.string, self.version)
        return next((each for each in said if each is not None), None)


class DeviceCapacity(Part, frozen=True, kw_only=True):
    """How much of something a device has."""

    value: Quantity = 0


class CounterConsumption(Part, frozen=True, kw_only=True):
    """What of a set of counters a part of a device takes."""

    counter_set: str = ""


class Device(Part, frozen=True, kw_only=True):
    """A device of a slice. Names without a domain are of the driver's. ``consumes_counters``: it is
    a part of something that other devices are parts of, too."""

    name: str
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False


class ResourcePool(Part, frozen=True, kw_only=True):
    """Slices of one pool belong together; only those of the newest generation count."""

    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Part, frozen=True, kw_only=True):
    """Devices of a driver and the nodes that reach them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()


class ResourceSlice(Object, frozen=True, kw_only=True):
    """A part of what a driver offers; cluster scoped."""

    spec: ResourceSliceSpec = ResourceSliceSpec()
