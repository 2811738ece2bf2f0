"""Preparations of a bind: the pod's volume claims and device claims.

Pure functions: from the current claim they derive the next write or the result. Every write is
conditional on the version from which it was derived, and a repeated evaluation, even after a
restart, continues at the same step.

* An existing volume: the volume's ``claimRef`` is set to the claim, and Kubernetes' volume
  controller binds the two. A volume to provision: the node is set on the claim, and its provisioner
  creates the volume. Both take time.
* Devices: the claim's status records the allocated devices and the pods that may use them.
"""

from typing import Any

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.decisions import decisions
from stromboli.shared import keys
from stromboli.shared.api import kinds, resource, storage
from stromboli.shared.messages import scheduling

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a volume whose ``claimRef`` was set by a controller, not by a user: the volume
controller removes the reference when the claim is deleted.
"""
PROTECTION = "resource.kubernetes.io/delete-protection"
"""Finalizer of a claim with devices, which keeps the claim while its devices are in use."""

Next = commands.Patch | decisions.ExecutionResult | None
"""The next write, or the result; None: evaluate the claim again later."""
DONE = decisions.EXECUTED


def refused(reason: str, message: str) -> decisions.ExecutionResult:
    """The result for a pod that cannot be bound."""
    return decisions.ExecutionResult("refused", reason, message)


def needs_volume(step: scheduling.ClaimedVolume, claim: storage.PersistentVolumeClaim) -> bool:
    """Whether the volume itself must be read."""
    return bool(step.volume) and not claim.spec.volume_name


def for_volume(
    step: scheduling.ClaimedVolume,
    namespace: str,
    node: str,
    claim: storage.PersistentVolumeClaim | None,
    volume: storage.PersistentVolume | None,
    *,
    is_asked: bool,
) -> Next:
    """The next step for a volume claim. ``volume``: the chosen volume, if it was read.
    ``is_asked``: the node was set on the claim before, so a claim without a node means that
    provisioning failed.
    """
    if claim is None or claim.metadata.uid != step.uid or claim.metadata.deletion_timestamp:
        return refused("ClaimGone", f"persistentvolumeclaim {step.claim} is deleted")
    chosen = claim.metadata.annotation(keys.SELECTED_NODE)
    if claim.spec.volume_name:
        is_ours = claim.spec.volume_name == step.volume if step.volume else chosen == node
        if not is_ours:
            text = f"persistentvolumeclaim {step.claim} is bound to {claim.spec.volume_name}"
            return refused("ClaimBound", text)
        return DONE if claim.status.phase == "Bound" else None
    if step.volume:
        return _named_by(volume, step, namespace)
    if chosen == node:
        return None
    if chosen:
        text = f"the volume of persistentvolumeclaim {step.claim} is provisioned for node {chosen}"
        return refused("ClaimElsewhere", text)
    if is_asked:
        text = (
            f"no volume could be provisioned for persistentvolumeclaim {step.claim} on node {node}"
        )
        return refused("ProvisioningFailed", text)
    annotations = {"annotations": {keys.SELECTED_NODE: node}}
    return manifests.merge(kinds.PERSISTENT_VOLUME_CLAIMS, claim, metadata=annotations)


def _named_by(
    volume: storage.PersistentVolume | None, step: scheduling.ClaimedVolume, namespace: str
) -> Next:
    if volume is None or volume.metadata.deletion_timestamp is not None:
        return refused("VolumeGone", f"persistentvolume {step.volume} is deleted")
    named = volume.spec.claim_ref
    if named is not None:
        is_it = (named.namespace, named.name) == (namespace, step.claim)
        if is_it and named.uid in ("", step.uid):
            return None
        return refused("VolumeTaken", f"persistentvolume {step.volume} is bound to another claim")
    reference = {
        "apiVersion": kinds.PERSISTENT_VOLUME_CLAIMS.api_version,
        "kind": kinds.PERSISTENT_VOLUME_CLAIMS.kind,
        "namespace": namespace,
        "name": step.claim,
        "uid": step.uid,
    }
    return manifests.merge(
        kinds.PERSISTENT_VOLUMES,
        volume,
        metadata={"annotations": {BOUND_BY_CONTROLLER: "yes"}},
        spec={"claimRef": reference},
    )


def for_devices(
    step: scheduling.ClaimedDevices,
    bind: scheduling.Bind,
    claim: resource.ResourceClaim | None,
    *,
    is_coming: bool,
) -> Next:
    """The next step for a device claim until it has the devices and is reserved for the pod.
    ``is_coming``: a bind that is executed now may allocate the claim.
    """
    if claim is None or claim.metadata.uid != step.uid or claim.metadata.deletion_timestamp:
        return refused("ClaimGone", f"resourceclaim {step.claim} is deleted")
    has = claim.status.allocation
    if has is None and step.allocation is None:
        if is_coming:
            return None  # another pod that shares the claim is about to allocate it
        return refused("ClaimDeallocated", f"resourceclaim {step.claim} has no devices any more")
    if has is not None and step.allocation is not None and not _is_same(has, step.allocation):
        return refused(
            "ClaimAllocated", f"resourceclaim {step.claim} is allocated to other devices"
        )
    if any(each.uid == bind.uid for each in claim.status.reserved_for):
        return DONE
    if PROTECTION not in claim.metadata.finalizers:
        finalizers = [*claim.metadata.finalizers, PROTECTION]
        return manifests.merge(kinds.RESOURCE_CLAIMS, claim, metadata={"finalizers": finalizers})
    pod = resource.ClaimConsumer(resource=kinds.PODS.plural, name=bind.pod, uid=bind.uid)
    status: dict[str, Any] = {"reservedFor": [*claim.status.reserved_for, pod]}
    if has is None:
        status["allocation"] = step.allocation
    return manifests.merge(kinds.RESOURCE_CLAIMS, claim, subresource="status", status=status)


def release(
    step: scheduling.ClaimedDevices, bind: scheduling.Bind, claim: resource.ResourceClaim | None
) -> commands.Patch | None:
    """The patch that rolls back the writes of ``for_devices`` for a pod that is not bound; None if
    there are none. Devices that no other pod uses are deallocated.
    """
    if claim is None or claim.metadata.uid != step.uid:
        return None
    others = [each for each in claim.status.reserved_for if each.uid != bind.uid]
    if len(others) == len(claim.status.reserved_for):
        return None
    status: dict[str, Any] = {"reservedFor": others or None}
    has = claim.status.allocation
    if not others and has and step.allocation and _is_same(has, step.allocation):
        status["allocation"] = None
    return manifests.merge(kinds.RESOURCE_CLAIMS, claim, subresource="status", status=status)


def outcome(
    step: scheduling.ClaimedDevices,
    namespace: str,
    claim: resource.ResourceClaim | None,
    *,
    is_bound: bool,
) -> scheduling.ClaimOutcome | None:
    """The outcome of a claim that the decision allocates; None if the allocation was not written.
    ``claim``: read after all binds. ``is_bound``: a pod that uses the claim was bound, so the claim
    was allocated, even if it is deallocated by now."""
    if claim is None or claim.metadata.uid != step.uid:
        return None
    has, allocation = claim.status.allocation, step.allocation
    if not is_bound and (has is None or allocation is None or not _is_same(has, allocation)):
        return None
    return scheduling.ClaimOutcome(
        namespace=namespace, claim=step.claim, uid=step.uid, version=claim.metadata.version
    )


def _is_same(left: resource.Allocation, right: resource.Allocation) -> bool:
    return {_identity(each) for each in left.devices.results} == {
        _identity(each) for each in right.devices.results
    }


def _identity(device: resource.AllocatedDevice) -> tuple[str, ...]:
    return device.request, device.driver, device.pool, device.device
