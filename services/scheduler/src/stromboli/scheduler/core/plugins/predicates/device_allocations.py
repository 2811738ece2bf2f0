"""Builds the ``status.allocation`` (resource.k8s.io) of a claim, which drivers read."""

from collections.abc import Iterator, Mapping

from stromboli.scheduler.core.plugins.predicates import device_inventory
from stromboli.shared.api import core, resource


def allocation(
    allocated_devices: device_inventory.AllocatedDevices,
    claim: resource.ResourceClaim,
    classes: Mapping[str, resource.DeviceClass],
    node: str,
) -> resource.Allocation:
    """Return the allocation of these devices for a pod of this node."""
    return resource.Allocation(
        devices=resource.AllocationDevices(
            results=tuple(
                resource.AllocatedDevice(
                    request=_request(want),
                    driver=device.driver,
                    pool=device.identity[1],
                    device=device.facts.name,
                    admin_access=want.is_admin,
                )
                for want, device in allocated_devices
            ),
            config=tuple(_configurations(allocated_devices, claim, classes)),
        ),
        node_selector=_selector(allocated_devices, node),
    )


def _request(want: device_inventory.DeviceSpec) -> str:
    return f"{want.name}/{want.alternative}" if want.alternative else want.name


def _configurations(
    allocated_devices: device_inventory.AllocatedDevices,
    claim: resource.ResourceClaim,
    classes: Mapping[str, resource.DeviceClass],
) -> Iterator[resource.AllocatedConfiguration]:
    """Return the configurations of the device classes, per request, followed by those of the
    claim."""
    requested = dict.fromkeys(want for want, _ in allocated_devices)
    for want in requested:
        for device_configuration in classes[want.class_name].spec.config:
            yield resource.AllocatedConfiguration(
                source="FromClass", requests=(_request(want),), opaque=device_configuration.opaque
            )
    names = {name for want in requested for name in (want.name, _request(want))}
    for device_configuration in claim.spec.devices.config:
        if not device_configuration.requests or names.intersection(device_configuration.requests):
            yield resource.AllocatedConfiguration(
                source="FromClaim",
                requests=device_configuration.requests,
                opaque=device_configuration.opaque,
            )


def _selector(
    allocated_devices: device_inventory.AllocatedDevices, node: str
) -> core.NodeSelector | None:
    """Return the selector of nodes that reach all the devices: one node-local device ties the claim
    to its node."""
    wide = [device.place for _, device in allocated_devices]
    if any(place is None for place in wide):
        named = core.SelectorRequirement(key="metadata.name", operator="In", values=(node,))
        return core.NodeSelector(
            node_selector_terms=(core.NodeSelectorTerm(match_fields=(named,)),)
        )
    terms = [place.node_selector_terms[0] for place in wide if place and place.node_selector_terms]
    if not terms:
        return None
    joined = core.NodeSelectorTerm(
        match_expressions=tuple(
            dict.fromkeys(each for term in terms for each in term.match_expressions)
        ),
        match_fields=tuple(dict.fromkeys(each for term in terms for each in term.match_fields)),
    )
    return core.NodeSelector(node_selector_terms=(joined,))
