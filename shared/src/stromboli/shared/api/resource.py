"""resource.k8s.io/v1: devices, their location and the claims on them."""

from typing import Any

import msgspec

from stromboli.shared.api.core import NodeSelector, Quantity
from stromboli.shared.api.meta import Int64, Object, ObjectMeta, Part


class CelSelector(Part, frozen=True, kw_only=True):
    """A condition on ``device`` in the Common Expression Language."""

    expression: str = ""


class DeviceSelector(Part, frozen=True, kw_only=True):
    """Selects devices."""

    cel: CelSelector | None = None


class OpaqueConfiguration(Part, frozen=True, kw_only=True):
    """Parameters that only the driver interprets."""

    driver: str = ""
    parameters: dict[str, Any] | None = None


class DeviceConfiguration(Part, frozen=True, kw_only=True):
    """Configuration for the devices of these requests; without requests, for all."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceClassSpec(Part, frozen=True, kw_only=True):
    """Selectors that must all match."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()


class DeviceClass(Object, frozen=True, kw_only=True):
    """A class of devices that claims refer to by name; cluster scoped."""

    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequests(Part, frozen=True, kw_only=True):
    """The requested amounts of each device's capacity."""

    requests: dict[str, Quantity] | None = None


class ExactRequest(Part, frozen=True, kw_only=True):
    """Devices of one class. ``count`` 0 means 1; mode ``All`` means all matching devices of a
    node.
    """

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: Int64 = 0
    admin_access: bool = False
    capacity: CapacityRequests = CapacityRequests()


class SubRequest(Part, frozen=True, kw_only=True):
    """One alternative of a request."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: Int64 = 0
    capacity: CapacityRequests = CapacityRequests()


class DeviceRequest(Part, frozen=True, kw_only=True):
    """A named request: exact, or the first feasible one of several alternatives."""

    name: str = ""
    exactly: ExactRequest | None = None
    first_available: tuple[SubRequest, ...] = ()


class DeviceConstraint(Part, frozen=True, kw_only=True):
    """Devices of these requests (without requests: of all) must match, or differ, in an
    attribute.
    """

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class DeviceClaim(Part, frozen=True, kw_only=True):
    """Requests that are satisfied together on one node."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()


class ResourceClaimSpec(Part, frozen=True, kw_only=True):
    """The requests of a claim."""

    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Part, frozen=True, kw_only=True):
    """A device that is allocated to a claim. With admin access it stays available to others."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False


class AllocatedConfiguration(DeviceConfiguration, frozen=True, kw_only=True):
    """A configuration and its origin, ``FromClass`` or ``FromClaim``."""

    source: str = ""


class AllocationDevices(Part, frozen=True, kw_only=True):
    """All devices of a claim, and the configuration for their drivers."""

    results: tuple[AllocatedDevice, ...] = ()
    config: tuple[AllocatedConfiguration, ...] = ()


class Allocation(Part, frozen=True, kw_only=True):
    """The allocation of a claim, and the nodes that can use it; no selector means all nodes."""

    devices: AllocationDevices = AllocationDevices()
    node_selector: NodeSelector | None = None


class ClaimConsumer(Part, frozen=True, kw_only=True):
    """A consumer of a claim; ``resource`` is ``pods`` for pods."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Part, frozen=True, kw_only=True):
    """The allocation of a claim and its consumers. Without an allocation the claim is pending. Only
    consumers in ``reserved_for`` may use it."""

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
    """The value of a device's attribute; exactly one field is set."""

    int_: Int64 | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None

    @property
    def value(self) -> int | bool | str | None:
        """The value of the field that is set."""
        fields = (self.int_, self.bool_, self.string, self.version)
        return next((each for each in fields if each is not None), None)


class DeviceCapacity(Part, frozen=True, kw_only=True):
    """The amount of one capacity of a device."""

    value: Quantity = 0


class CounterConsumption(Part, frozen=True, kw_only=True):
    """The amounts that a partition of a device consumes of a counter set."""

    counter_set: str = ""


class Device(Part, frozen=True, kw_only=True):
    """A device of a slice. Names without a domain belong to the driver's domain.
    ``consumes_counters``: it is a partition that shares counters with other devices.
    """

    name: str
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False


class ResourcePool(Part, frozen=True, kw_only=True):
    """The pool of a slice; only slices of the newest generation are valid."""

    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Part, frozen=True, kw_only=True):
    """Devices of a driver and the nodes that can use them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()


class ResourceSlice(Object, frozen=True, kw_only=True):
    """A part of the devices that a driver offers; cluster scoped."""

    spec: ResourceSliceSpec = ResourceSliceSpec()
