"""Volumes and devices for the jobs that claim them.

A device is given to one claim, and there are devices for the claims of all runs: nothing waits for
one, and a device that is given twice shows. Volumes are made by hand, so that Kubernetes' own
controller binds them to the claims that the scheduler chose them for.
"""

from __future__ import annotations

from stromboli.testkit.parts import real
from tests.faults.support import workload

RESOURCES = "/apis/resource.k8s.io/v1"
DEVICES = 60
"""On each node; a slice has at most 128."""


async def provide_classes(parts: real.RealParts) -> None:
    """A class of volumes that wait for pods, a class of devices, and devices on each node."""
    async with parts.client() as api:
        await api.create(
            "/apis/storage.k8s.io/v1/storageclasses",
            {
                "metadata": {"name": workload.STORAGE_CLASS},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        )
        await api.create(f"{RESOURCES}/deviceclasses", {"metadata": {"name": "card"}, "spec": {}})
        for node in (await api.get("/api/v1/nodes"))["items"]:
            name = node["metadata"]["name"]
            spec = {
                "driver": "cards.example.com",
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "nodeName": name,
                "devices": [{"name": f"card-{number}"} for number in range(DEVICES)],
            }
            await api.create(
                f"{RESOURCES}/resourceslices", {"metadata": {"name": name}, "spec": spec}
            )


async def provide(parts: real.RealParts, namespace: str) -> None:
    """Two volumes, of which one is needed, and the device claim of a namespace's job."""
    async with parts.client() as api:
        for number in range(2):
            spec = {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteMany"],
                "hostPath": {"path": "/nowhere"},
                "storageClassName": workload.STORAGE_CLASS,
            }
            metadata = {"name": f"{namespace}-{number}"}
            await api.create("/api/v1/persistentvolumes", {"metadata": metadata, "spec": spec})
        requests = [{"name": "card", "exactly": {"deviceClassName": "card"}}]
        await api.create(
            f"{RESOURCES}/namespaces/{namespace}/resourceclaims",
            {
                "metadata": {"name": workload.DEVICE_CLAIM},
                "spec": {"devices": {"requests": requests}},
            },
        )
