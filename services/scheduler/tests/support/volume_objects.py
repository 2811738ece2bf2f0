"""Volumes and pods that claim them: tests name only what matters to the rule."""

from typing import Any

import msgspec

from stromboli.shared import decoding
from stromboli.shared.api import core, storage
from stromboli.testkit import builders

DRIVER = "disks.example.com"


def storage_class(name: str = "late", provisioner: str = "", **more: Any) -> storage.StorageClass:
    """A class whose volumes are chosen after the node, by default without a provisioner."""
    return decoding.convert(
        {
            "metadata": {"name": name},
            "provisioner": provisioner or "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
            **more,
        },
        storage.StorageClass,
    )


def zone(name: str) -> dict[str, Any]:
    """A node affinity to the nodes of a zone."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


def volume(
    name: str, gib: int = 10, zone_name: str = "", labels: dict[str, str] | None = None, **spec: Any
) -> storage.PersistentVolume:
    """An unclaimed volume of the class ``late``."""
    placed = {"nodeAffinity": zone(zone_name)} if zone_name else {}
    capacity = {"storage": f"{gib}Gi"}
    return decoding.convert(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"capacity": capacity, "storageClassName": "late", **placed} | spec,
            "status": {"phase": "Available"},
        },
        storage.PersistentVolume,
    )


def claim(name: str, gib: int = 1, **spec: Any) -> storage.PersistentVolumeClaim:
    """A claim of the class ``late`` that waits for its pod."""
    requests = {"requests": {"storage": f"{gib}Gi"}}
    return decoding.convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"resources": requests, "storageClassName": "late", **spec},
        },
        storage.PersistentVolumeClaim,
    )


def pod(name: str, group: str, *claims: str, **more: Any) -> core.Pod:
    """A pod that mounts claims."""
    return mounting(builders.make_pod(name, group, **more), *claims)


def mounting(made: core.Pod, *claims: str) -> core.Pod:
    """The pod, which mounts claims."""
    volumes = tuple(
        core.Volume(
            name=each,
            persistent_volume_claim=core.PersistentVolumeClaimSource(claim_name=each),
        )
        for each in claims
    )
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, volumes=volumes))


def own(name: str, group: str, **more: Any) -> core.Pod:
    """A pod with an ephemeral volume ``scratch``."""
    made = builders.make_pod(name, group, **more)
    volume_ = core.Volume(name="scratch", ephemeral=core.EphemeralVolumeSource())
    return msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, volumes=(volume_,))
    )
