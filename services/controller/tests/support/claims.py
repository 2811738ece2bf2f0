"""Volumes and devices that pods claim, and decisions that bind such pods."""

from typing import Any

import msgspec

from services.controller.tests.support.service_harness import Harness
from stromboli.shared.api import core, kinds, meta, resource
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

DRIVER = "gpu.example.com"


async def create(harness: Harness, kind: kinds.Kind[Any], name: str, **document: Any) -> Any:
    """An object as a user or administrator makes it."""
    namespace = "default" if kind.namespaced else ""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **document}
    return kind.decode(await harness.cluster.create(kind, namespace, msgspec.json.encode(body)))


async def late_class(harness: Harness, name: str, provisioner: str) -> None:
    """A class whose claims wait for their first consumer."""
    more = {"volumeBindingMode": "WaitForFirstConsumer"}
    await create(harness, kinds.STORAGE_CLASSES, name, provisioner=provisioner, **more)


async def volume_claim(harness: Harness, name: str, of: str) -> Any:
    """A claim to 1 GiB of a class."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": of,
    }
    return await create(harness, kinds.PERSISTENT_VOLUME_CLAIMS, name, spec=spec)


async def volume(harness: Harness, name: str, of: str) -> Any:
    """A volume of a class, on n1."""
    expressions = [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]
    terms = [{"matchExpressions": expressions}]
    spec = {
        "capacity": {"storage": "2Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": of,
        "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    return await create(harness, kinds.PERSISTENT_VOLUMES, name, spec=spec)


async def device_claim(harness: Harness, name: str, device_class: str = "gpu") -> Any:
    """A claim to one device."""
    requests = [{"name": "r", "exactly": {"deviceClassName": device_class}}]
    spec = {"devices": {"requests": requests}}
    return await create(harness, kinds.RESOURCE_CLAIMS, name, spec=spec)


def allocation(device: str = "gpu-0") -> resource.Allocation:
    """One device of n1."""
    allocated_device = resource.AllocatedDevice(
        request="r", driver=DRIVER, pool="n1", device=device
    )
    named = core.SelectorRequirement(key="metadata.name", operator="In", values=("n1",))
    return resource.Allocation(
        devices=resource.AllocationDevices(results=(allocated_device,)),
        node_selector=core.NodeSelector(
            node_selector_terms=(core.NodeSelectorTerm(match_fields=(named,)),)
        ),
    )


async def pods(harness: Harness, *names: str) -> list[core.Pod]:
    """Pods of a gang ``g`` that wait."""
    for name in names:
        await harness.submit(builders.make_pod(name, "g"))
    return [await harness.until(kinds.PODS, f"default/{name}", lambda _: True) for name in names]


def bind(pod: core.Pod, *steps: messages.ClaimedVolume | messages.ClaimedDevices) -> messages.Bind:
    """To n1, after these steps."""
    return messages.Bind(
        namespace="default",
        pod=pod.metadata.name,
        uid=pod.metadata.uid,
        node="n1",
        volumes=tuple(each for each in steps if isinstance(each, messages.ClaimedVolume)),
        devices=tuple(each for each in steps if isinstance(each, messages.ClaimedDevices)),
    )


def to_volume(claim: meta.Object, volume_name: str = "") -> messages.ClaimedVolume:
    """The claim is to be bound to this volume, or to one that is made."""
    metadata = claim.metadata
    return messages.ClaimedVolume(claim=metadata.name, uid=metadata.uid, volume=volume_name)


def to_devices(
    claim: meta.Object, given: resource.Allocation | None = None
) -> messages.ClaimedDevices:
    """The claim is to get these devices."""
    metadata = claim.metadata
    return messages.ClaimedDevices(claim=metadata.name, uid=metadata.uid, allocation=given)


async def decide(harness: Harness, *binds: messages.Bind) -> list[tuple[str, str]]:
    """(result, reason) of each bind."""
    decision = await harness.decide(pod_group="default/g", pod_group_uid="g", binds=binds)
    answer = await harness.answer(decision)
    return [(task.result, task.reason) for task in answer.tasks]
