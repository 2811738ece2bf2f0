"""Raw clients: they bind as many pods as the system does, without making decisions.

* ``raw`` creates pods of a plain template and binds them.
* ``same_bodies`` creates the bodies that the controller creates (``bench.same_bodies``) and binds
  them with the body of our bindings.
* ``created_bound`` creates the controller's bodies with ``nodeName``: one write for each pod.

The services and their watches run at the same time, as in a round of the system.
"""

from __future__ import annotations

import json
from typing import Any, Literal, Protocol

from bench import bulk_client, observer, same_bodies
from stromboli.shared import keys

Mode = Literal["raw", "same_bodies", "created_bound"]
MODES: tuple[Mode, ...] = ("raw", "same_bodies", "created_bound")
NODES = 100
OUR_SCHEDULER = "volcano"
DECISION = "scheduler/1234567/1234567/0"
"""An id of the length of those in the annotation of the system's bindings."""


def node_name(index: int) -> str:
    """The node of a pod: round robin."""
    return f"node-{index % NODES:04d}"


class Creates(Protocol):
    """A client that creates objects."""

    async def create(self, path: str, document: dict[str, Any]) -> bytes:
        """Create an object; return it as the API server returns it."""


async def owner(client: Creates, name: str, job: dict[str, Any]) -> bytes:
    """Create a job that the services ignore, so that its deletion deletes the pods that it owns;
    return it as the API server returns it."""
    own = {**job, "metadata": {**job["metadata"], "name": name}}
    own["spec"] = {**job["spec"], "schedulerName": same_bodies.SCHEDULER, "queue": "default"}
    return await client.create(observer.JOBS, own)


def as_ours(served: bytes) -> bytes:
    """The owner as a job of Stromboli's scheduler."""
    document = json.loads(served)
    document["spec"]["schedulerName"] = OUR_SCHEDULER
    return json.dumps(document).encode()


def bodies(mode: Mode, served: bytes) -> list[dict[str, Any]]:
    """The bodies of the owner's pods in a mode."""
    pods = same_bodies.captured(as_ours(served)).pods
    if mode == "raw":
        document = json.loads(served)
        template = document["spec"]["tasks"][0]["template"]["spec"]
        return [
            {
                "metadata": {
                    "name": pod["metadata"]["name"],
                    "labels": {observer.JOB_NAME: document["metadata"]["name"]},
                    "ownerReferences": pod["metadata"]["ownerReferences"],
                },
                "spec": {**template, "schedulerName": same_bodies.SCHEDULER},
            }
            for pod in pods
        ]
    if mode == "created_bound":
        for index, pod in enumerate(pods):
            pod["spec"]["nodeName"] = node_name(index)
            pod["metadata"]["annotations"][keys.DECISION] = DECISION
    return pods


async def bring(
    client: bulk_client.Client, mode: Mode, pods: list[dict[str, Any]], concurrency: int
) -> None:
    """Create the pods and bind them."""

    async def one(index: int) -> None:
        made = await client.create(observer.PODS, pods[index])
        if mode != "created_bound":
            await client.create(*binding(mode, made, node_name(index)))

    await bulk_client.side_by_side(range(len(pods)), one, concurrency)


def binding(mode: Mode, created: bytes, node: str) -> tuple[str, dict[str, Any]]:
    """Path and body of the binding of a pod."""
    pod = json.loads(created)["metadata"]
    metadata = {"name": pod["name"]}
    if mode == "same_bodies":
        annotations = {keys.DECISION: DECISION}
        metadata |= {key: pod[key] for key in ("namespace", "uid")} | {"annotations": annotations}
    return f"{observer.PODS}/{pod['name']}/binding", {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
