"""Devices that pods claim: finds and reads their ResourceClaims.

A pod names a claim, or a template from which a claim is made for it; the name of that claim is in
the pod's status. Pods that share a claim share its devices.
"""

from collections.abc import Iterator

import msgspec

from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.model import entities
from stromboli.shared.api import core, meta, resource
from stromboli.shared.formats import units

DEVICE_CLASS = "deviceclass/"
"""Prefix of the names by which queues limit devices."""


class PodClaims(msgspec.Struct, frozen=True):
    """Claims of a pod by key. ``problem``: why the pod cannot be placed yet; empty if it can."""

    claims: tuple[resource.ResourceClaim, ...] = ()
    problem: str = ""


_NOTHING = PodClaims()


class ClaimIndex:
    """The claims of a cluster, by ``namespace/name``."""

    def __init__(self, cluster: cluster_objects.Cluster) -> None:
        self.by_key = {claim.metadata.key: claim for claim in cluster.resource_claims}

    def of(self, task: entities.Task) -> PodClaims:
        """The claims of a task."""
        if not task.pod.spec.resource_claims:
            return _NOTHING
        claims = []
        for name, key in self._keys(task):
            if not key:
                return PodClaims(problem=f"resource claim {name} of the pod does not exist yet")
            claim = self.by_key.get(key)
            if claim is None:
                return PodClaims(problem=f'could not find resourceclaim "{key.partition("/")[2]}"')
            if claim.metadata.deletion_timestamp is not None:
                return PodClaims(problem=f'resourceclaim "{claim.metadata.name}" is being deleted')
            claims.append(claim)
        return PodClaims(tuple(claims))

    def _keys(self, task: entities.Task) -> Iterator[tuple[str, str]]:
        """(name in the pod, key of the claim) for each claim; an empty key if the claim's name is
        not known yet."""
        claim_statuses = {each.name: each for each in task.pod.status.resource_claim_statuses}
        for wanted in task.pod.spec.resource_claims:
            name = wanted.resource_claim_name
            if not name and wanted.name in claim_statuses:
                name = claim_statuses[wanted.name].resource_claim_name
                if not name:
                    continue  # The controller that makes claims states that none is needed.
            yield wanted.name, f"{task.namespace}/{name}" if name else ""


def import_selector_language(obj: meta.Object) -> None:
    """Import the language of device selectors if the object has one, before a session needs it: on
    a busy machine the import takes longer than the deadline of a plugin."""
    match obj:
        case resource.DeviceClass():
            selectors = obj.spec.selectors
        case resource.ResourceClaim():
            selectors = tuple(_selectors(obj.spec.devices))
        case _:
            return
    if selectors:
        import cel  # noqa: F401 - see `device_selectors.Selectors`


def _selectors(claim: resource.DeviceClaim) -> Iterator[resource.DeviceSelector]:
    for request in claim.requests:
        if request.exactly is not None:
            yield from request.exactly.selectors
        for alternative in request.first_available:
            yield from alternative.selectors


def volume_keys(pod: core.Pod) -> list[str]:
    """Keys of the PersistentVolumeClaims that a pod mounts, in the order of its volumes."""
    claim_keys = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
            claim_keys.append(f"{pod.metadata.namespace}/{name}")
        elif volume.ephemeral is not None:
            claim_keys.append(f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}")
    return claim_keys


def has_claims(pod: core.Pod) -> bool:
    """Whether the pod claims volumes or devices."""
    return bool(pod.spec.resource_claims) or any(
        each.persistent_volume_claim is not None or each.ephemeral is not None
        for each in pod.spec.volumes
    )


def device_request(claim: resource.ResourceClaim) -> units.Amounts:
    """The number of devices by class, as ``deviceclass/<class>``, and their capacity, as
    ``<dimension>.deviceclass/<class>`` in the unit of that resource.

    Requests for all devices of a node, or for the first available alternative, have no size before
    a node is chosen; they are left out. Raises ValueError for an invalid quantity.
    """
    total: units.Amounts = {}
    for request in claim.spec.devices.requests:
        exactly = request.exactly
        if exactly is None or exactly.allocation_mode == "All":
            continue
        count = max(exactly.count, 1)
        name = f"{DEVICE_CLASS}{exactly.device_class_name}"
        requested = {name: units.amount(name, count)}
        for dimension, quantity in (exactly.capacity.requests or {}).items():
            of_class = f"{dimension}.{name}"
            requested[of_class] = count * units.amount(of_class, quantity)
        total = units.add(total, requested)
    return total
