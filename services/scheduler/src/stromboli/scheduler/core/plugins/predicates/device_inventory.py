"""The devices of a cluster: the nodes that reach them, and their allocation to claims.

Devices are allocated as a whole. The assignment of a node's devices to several requests is a
bipartite matching; the search finds one if it exists.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from stromboli.scheduler.core.model import node_constraints, nodes, requirements
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.predicates import device_selectors
from stromboli.shared.api import core, resource

Identity: TypeAlias = tuple[str, str, str]
"""Driver, pool, device name."""


class Device(msgspec.Struct, frozen=True, eq=False):
    """A device. ``number``: its index in the inventory. ``place``: the selector of nodes that reach
    it (no terms: all nodes); None for a device of one node."""

    number: int
    identity: Identity
    driver: str
    facts: resource.Device
    place: core.NodeSelector | None


class DeviceSpec(msgspec.Struct, frozen=True):
    """A request for devices under one name. ``count`` None: all that match on the node."""

    name: str
    class_name: str
    expressions: tuple[str, ...]
    count: int | None
    is_admin: bool = False
    alternative: str = ""
    """The name of this alternative of ``firstAvailable``."""


class DeviceRequest(msgspec.Struct, frozen=True):
    """What one claim requests. ``requests``: the alternatives of each request, the preferred one
    first. ``constraints``: the attributes on which devices must agree."""

    requests: tuple[tuple[DeviceSpec, ...], ...]
    constraints: tuple[resource.DeviceConstraint, ...] = ()


AllocatedDevices: TypeAlias = tuple[tuple[DeviceSpec, Device], ...]
"""The devices of a node for one claim."""


class Inventory:
    """All devices, and those that are allocated."""

    def __init__(
        self,
        slices: Iterable[resource.ResourceSlice],
        classes: Mapping[str, resource.DeviceClass],
        table: nodes.Nodes,
    ) -> None:
        self._classes = classes
        self._table = table
        self._selectors = device_selectors.Selectors()
        self._accepted: dict[tuple[str, tuple[str, ...]], tuple[set[int], dict[int, str]]] = {}
        self.devices: list[Device] = []
        self._on: dict[int, list[Device]] = {}
        self._wide: list[tuple[Device, extension_points.Mask]] = []
        self.taken: set[Identity] = set()
        for each in _newest(slices):
            for facts in each.spec.devices:
                if not facts.consumes_counters:  # Overlapping partitions are not supported.
                    self._add(each.spec, facts)

    @property
    def has_wide(self) -> bool:
        """Return whether any device is reached from several nodes, so that its allocation changes
        other nodes."""
        return bool(self._wide)

    def reached(self, devices: Iterable[Device]) -> extension_points.Mask:
        """Return the nodes that reach all these devices."""
        mask = np.ones(len(self._table), np.bool_)
        wide = {device.number: reach for device, reach in self._wide}
        rows = {device.number: row for row, devices in self._on.items() for device in devices}
        for device in devices:
            if device.number in wide:
                mask &= wide[device.number]
            else:
                mask &= np.arange(len(mask)) == rows[device.number]
        return mask

    def match(self, demands: Sequence[DeviceRequest], row: int) -> list[AllocatedDevices] | None:
        """Return devices of a node for each of the requests; None if the node lacks some.

        Raises device_selectors.SelectorError if a selector cannot be evaluated for a device of the
        node.
        """
        there = self._devices_on(row)
        alternatives = [request for demand in demands for request in demand.requests]
        for wants in itertools.product(*alternatives):
            for accepted in self._restrictions(demands, wants, there):
                assignment = self._assign(wants, accepted, there)
                if assignment is not None:
                    rest = iter(assignment)
                    return [
                        tuple(itertools.chain(*itertools.islice(rest, len(demand.requests))))
                        for demand in demands
                    ]
        return None

    def _restrictions(
        self, demands: Sequence[DeviceRequest], wants: Sequence[DeviceSpec], there: Sequence[Device]
    ) -> Iterator[list[set[int]]]:
        """Yield, for each choice of the attribute values that must agree, the devices that each
        spec accepts."""
        accepted = [self._matching(want, there) for want in wants]
        bound: list[tuple[list[int], dict[object, set[int]]]] = []
        at = 0
        for demand in demands:
            places = range(at, at + len(demand.requests))
            for constraint in demand.constraints:
                named = [
                    place
                    for place in places
                    if not constraint.requests or wants[place].name in constraint.requests
                ]
                bound.append((named, _by_value(constraint.match_attribute, there)))
            at += len(demand.requests)
        for chosen in itertools.product(*(values.values() for _, values in bound)):
            narrowed = [set(each) for each in accepted]
            for (named, _), numbers in zip(bound, chosen, strict=True):
                for place in named:
                    narrowed[place] &= numbers
            yield narrowed

    def _matching(self, want: DeviceSpec, there: Iterable[Device]) -> set[int]:
        matching, unclear = self._accepted_by(want)
        for device in there:
            if device.number in unclear:
                raise device_selectors.SelectorError(unclear[device.number])
        return matching

    def _accepted_by(self, want: DeviceSpec) -> tuple[set[int], dict[int, str]]:
        key = (want.class_name, want.expressions)
        known = self._accepted.get(key)
        if known is None:
            known = self._accepted[key] = (set(), {})
            of_class = self._classes[want.class_name].spec.selectors
            expressions = (*cel_texts(of_class), *want.expressions)
            for device in self.devices:
                try:
                    if self._selectors.select(device.driver, device.facts, expressions):
                        known[0].add(device.number)
                except device_selectors.SelectorError as error:
                    known[1][device.number] = str(error)
        return known

    def _assign(
        self, wants: Sequence[DeviceSpec], accepted: Sequence[set[int]], there: Sequence[Device]
    ) -> list[list[tuple[DeviceSpec, Device]]] | None:
        """Return devices for each of the specs."""
        assignment: list[list[tuple[DeviceSpec, Device]]] = [[] for _ in wants]
        places: list[int] = []
        free: list[list[int]] = []
        for place, (want, numbers) in enumerate(zip(wants, accepted, strict=True)):
            devices = [device for device in there if device.number in numbers]
            count = len(devices) if want.count is None else want.count
            if not devices or len(devices) < count:
                return None
            if want.is_admin:
                assignment[place] = [(want, device) for device in devices[:count]]
                continue
            places += [place] * count
            free += [[each.number for each in devices if each.identity not in self.taken]] * count
        matching = _matching_of(free)
        if matching is None:
            return None
        # Equal devices are interchangeable: the first ones are taken.
        for place, number in sorted(zip(places, matching, strict=True)):
            assignment[place].append((wants[place], self.devices[number]))
        return assignment

    def _devices_on(self, row: int) -> list[Device]:
        return [
            *self._on.get(row, ()),
            *(device for device, reach in self._wide if reach[row]),
        ]

    def _add(self, spec: resource.ResourceSliceSpec, facts: resource.Device) -> None:
        identity = (spec.driver, spec.pool.name, facts.name)
        place: resource.ResourceSliceSpec | resource.Device = (
            facts if spec.per_device_node_selection else spec
        )
        reached = core.NodeSelector() if place.all_nodes else place.node_selector
        device = Device(len(self.devices), identity, spec.driver, facts, reached)
        self.devices.append(device)
        if place.node_name:
            row = self._table.rows.get(place.node_name)
            if row is not None:
                self._on.setdefault(row, []).append(device)
        elif place.all_nodes:
            self._wide.append((device, np.ones(len(self._table), np.bool_)))
        elif place.node_selector is not None:
            self._wide.append((device, selected(self._table, place.node_selector)))


def device_request(claim: resource.ResourceClaim) -> DeviceRequest:
    """Return the request of a claim. Raises ValueError for features that are not supported."""
    devices = claim.spec.devices
    for constraint in devices.constraints:
        if not constraint.match_attribute:
            raise ValueError("constraints other than matchAttribute are not supported")
    requests = []
    for request in devices.requests:
        exactly = request.exactly
        if exactly is not None:
            wants: tuple[DeviceSpec, ...] = (
                _device_spec(request.name, exactly, is_admin=exactly.admin_access),
            )
        else:
            wants = tuple(_device_spec(request.name, each) for each in request.first_available)
        if not wants:
            raise ValueError(f"request {request.name} has neither exactly nor firstAvailable")
        requests.append(wants)
    return DeviceRequest(tuple(requests), devices.constraints)


def _device_spec(
    name: str, requested: resource.ExactRequest | resource.SubRequest, *, is_admin: bool = False
) -> DeviceSpec:
    if requested.count < 0:
        raise ValueError(f"request {name}: count {requested.count} is negative")
    takes_all = requested.allocation_mode == "All"
    return DeviceSpec(
        name,
        requested.device_class_name,
        cel_texts(requested.selectors),
        None if takes_all else max(requested.count, 1),
        is_admin,
        requested.name if isinstance(requested, resource.SubRequest) else "",
    )


def cel_texts(cel_selectors: Iterable[resource.DeviceSelector]) -> tuple[str, ...]:
    """Return the expressions of selectors."""
    return tuple(each.cel.expression for each in cel_selectors if each.cel is not None)


def selected(table: nodes.Nodes, selector: core.NodeSelector) -> extension_points.Mask:
    """Return the nodes that a selector matches."""
    return node_constraints.matches(table.labelled, requirements.Constraints((), selector, ()))


def _newest(slices: Iterable[resource.ResourceSlice]) -> list[resource.ResourceSlice]:
    ordered = sorted(slices, key=lambda each: each.metadata.name)
    newest: dict[tuple[str, str], int] = {}
    for each in ordered:
        pool = (each.spec.driver, each.spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), each.spec.pool.generation)
    return [
        each
        for each in ordered
        if each.spec.pool.generation == newest[each.spec.driver, each.spec.pool.name]
    ]


def _by_value(attribute: str, there: Iterable[Device]) -> dict[object, set[int]]:
    """Return value -> devices that have it. A device without the attribute agrees with no other."""
    devices_by_value: dict[object, set[int]] = {}
    for device in there:
        for name, each in (device.facts.attributes or {}).items():
            full = name if "/" in name else f"{device.driver}/{name}"
            if full == attribute:
                devices_by_value.setdefault(each.value, set()).add(device.number)
    return devices_by_value


def _matching_of(slots: Sequence[Collection[int]]) -> list[int] | None:
    """Return a distinct device for every slot, by augmenting paths; None if there is none."""
    holder: dict[int, int] = {}

    def place(slot: int, tried: set[int]) -> bool:
        for number in slots[slot]:
            if number not in tried:
                tried.add(number)
                if number not in holder or place(holder[number], tried):
                    holder[number] = slot
                    return True
        return False

    if not all(place(slot, set()) for slot in range(len(slots))):
        return None
    device_by_slot = {slot: number for number, slot in holder.items()}
    return [device_by_slot[slot] for slot in range(len(slots))]
