"""What other clients of the API server may do to jobs, pods and claims. The checkers must name
each, as no decision, policy or flow did it."""

from __future__ import annotations

from typing import Any

from stromboli.testkit.checkers import invariants
from stromboli.testkit.parts.api import Api

BATCH = "/apis/batch.volcano.sh/v1alpha1"
FLOWS = "/apis/flow.volcano.sh/v1alpha1"
COMMANDS = "/apis/bus.volcano.sh/v1alpha1"
Object = dict[str, Any]


async def restart(api: Api, job: Object) -> None:
    """Restart a job by a Command."""
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    target |= {key: job["metadata"][key] for key in ("name", "uid")}
    command = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": "restart"},
        "action": "RestartJob",
        "target": target,
    }
    namespace = job["metadata"]["namespace"]
    await api.create(f"{COMMANDS}/namespaces/{namespace}/commands", command)


async def complete(api: Api, job: Object) -> None:
    """Write that a job is completed, whatever its pods do."""
    metadata = job["metadata"]
    path = f"{BATCH}/namespaces/{metadata['namespace']}/jobs/{metadata['name']}/status"
    await api.patch(path, {"status": {"state": {"phase": "Completed"}}})


async def delete_job(api: Api, job: Object) -> None:
    """Delete a job, and let the garbage collector delete its pods."""
    metadata = job["metadata"]
    await api.delete(f"{BATCH}/namespaces/{metadata['namespace']}/jobs/{metadata['name']}")


async def delete_flow(api: Api, flow: Object) -> None:
    """Delete a flow, and let the garbage collector delete its jobs."""
    metadata = flow["metadata"]
    await api.delete(f"{FLOWS}/namespaces/{metadata['namespace']}/jobflows/{metadata['name']}")


async def bind(api: Api, pod: Object, node: str) -> None:
    """Bind a pod to a node, as a scheduler does."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "target": target}
    await api.create(path, {**binding, "metadata": {"name": metadata["name"]}})


async def copy_to_next_version(api: Api, pod: Object) -> None:
    """Create a pod of the next version of a job, on the node of one of the current version."""
    metadata = pod["metadata"]
    annotations = {**metadata["annotations"], invariants.VERSION: "1"}
    (container,) = pod["spec"]["containers"]
    spec = {
        "nodeName": pod["spec"]["nodeName"],
        "containers": [{key: container[key] for key in ("name", "image", "resources")}],
        "automountServiceAccountToken": False,
    }
    copied = {
        "name": f"{metadata['name']}-copy",
        "annotations": annotations,
        "ownerReferences": metadata["ownerReferences"],
    }
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods"
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": copied}
    await api.create(path, {**made, "spec": spec})


async def claim_volume_twice(api: Api, namespace: str, volume: str) -> None:
    """Create two claims that name one volume."""
    for number in range(2):
        spec = {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
            "volumeName": volume,
        }
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        await api.create(path, {"metadata": {"name": f"twice-{number}"}, "spec": spec})
