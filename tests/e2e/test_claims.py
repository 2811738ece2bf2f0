"""Jobs whose pods claim volumes and devices, from the job to running pods."""

from pathlib import Path
from typing import Any

import httpx
import msgspec

from stromboli.client import server
from stromboli.shared import keys
from stromboli.shared.api import core, kinds, storage
from stromboli.testkit import objects
from tests.e2e.support import configured_system as cells

TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
DRIVER = "gpu.example.com"


async def add_disks_and_devices(cell: cells.ConfiguredSystem) -> None:
    """A class of disks that waits for pods, and one card on each node, which one claim may have."""
    late: dict[str, Any] = {
        "provisioner": "disks.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    await cell.cluster.create(
        kinds.STORAGE_CLASSES, "", objects.make(kinds.STORAGE_CLASSES, "late", **late)
    )
    await cell.cluster.create(
        kinds.DEVICE_CLASSES, "", objects.make(kinds.DEVICE_CLASSES, "gpu", spec={})
    )
    for node in ("node-00", "node-01"):
        spec = {
            "driver": DRIVER,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "nodeName": node,
            "devices": [{"name": "gpu-0"}],
        }
        made = objects.make(kinds.RESOURCE_SLICES, f"cards-{node}", spec=spec)
        await cell.cluster.create(kinds.RESOURCE_SLICES, "", made)


async def claim_device(cell: cells.ConfiguredSystem, name: str) -> None:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    spec = {"devices": {"requests": requests}}
    made = objects.make(kinds.RESOURCE_CLAIMS, name, {"namespace": "default"}, spec=spec)
    await cell.cluster.create(kinds.RESOURCE_CLAIMS, "default", made)


def job(name: str, card: str) -> dict[str, Any]:
    """Two pods that share a disk, which is made for the job, and a card."""
    requests = {"cpu": "1", "memory": "64Mi"}
    container = {"name": "c", "image": "busybox", "resources": {"requests": requests}}
    template = {
        "metadata": {"annotations": {keys.RUN_SECONDS: "600"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "resourceClaims": [{"name": "card", "resourceClaimName": card}],
        },
    }
    claim = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "late",
    }
    spec = {
        "minAvailable": 2,
        "volumes": [{"mountPath": "/data", "volumeClaim": claim}],
        "tasks": [{"name": "t", "replicas": 2, "template": template}],
    }
    return {"metadata": {"name": name}, "spec": spec}


async def test_pods_run_on_the_nodes_of_their_volumes_and_devices(tmp_path: Path) -> None:
    """Two jobs get a node each, with its GPU and a new volume; the third is pending for a GPU and
    gets that of a job that is deleted with its claim.
    """
    async with (
        cells.running(tmp_path, "enqueue, allocate", TIERS) as cell,
        httpx.AsyncClient(**server.httpx_options(cell.url, 30)) as http,
    ):
        await add_disks_and_devices(cell)

        async def submit(name: str) -> None:
            await claim_device(cell, f"{name}-card")
            answer = await http.post("/v1/namespaces/default/jobs", json=job(name, f"{name}-card"))
            answer.raise_for_status()

        async def why(name: str) -> str:
            return (await http.get(f"/v1/namespaces/default/jobs/{name}/explanation")).text

        places: dict[str, set[str]] = {}
        for name in ("a", "b"):
            await submit(name)
            places[name] = await cell.nodes_of(name, 2)
            assert len(places[name]) == 1
        assert places["a"] != places["b"]
        await submit("c")
        await cell.until(lambda: why("c"), lambda text: "cannot allocate all claims" in text)

        disks = [
            kinds.PERSISTENT_VOLUME_CLAIMS.decode(raw)
            for raw in (await cell.cluster.list(kinds.PERSISTENT_VOLUME_CLAIMS)).items
        ]
        bound = {each.metadata.annotation(keys.SELECTED_NODE): each.status for each in disks}
        done = storage.PersistentVolumeClaimStatus(phase="Bound")
        assert {node: bound[node] for node in ("node-00", "node-01")} == dict.fromkeys(
            ("node-00", "node-01"), done
        )
        card = kinds.RESOURCE_CLAIMS.decode(
            await cell.cluster.get(kinds.RESOURCE_CLAIMS, "default", "a-card")
        )
        assert card.status.allocation is not None
        selector = card.status.allocation.node_selector
        assert isinstance(selector, core.NodeSelector)
        assert selector.node_selector_terms[0].match_fields[0].values == tuple(places["a"])
        assert len(card.status.reserved_for) == 2

        await http.delete("/v1/namespaces/default/jobs/a")
        free = msgspec.json.encode({"metadata": {"finalizers": None}})
        await cell.cluster.patch(
            kinds.RESOURCE_CLAIMS, "default", "a-card", free, patch_type="merge"
        )
        await cell.cluster.delete(kinds.RESOURCE_CLAIMS, "default", "a-card")
        assert await cell.nodes_of("c", 2) == places["a"]
