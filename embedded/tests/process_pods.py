"""A cluster with one process node, for tests that run pods."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stromboli.embedded.cluster import EmbeddedCluster, Kubelet
from stromboli.embedded.nodes.list_watch import list_and_watch
from stromboli.embedded.processes import agent, data_caches, machine
from stromboli.embedded.processes.core.image_files import ImageRuntime
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.runtime import runtime
from stromboli.testkit import objects, records

NODE = "process-00"
Document = dict[str, Any]


class ProcessCluster:
    """A cluster with one process node, and a user of it."""

    def __init__(
        self,
        cluster: EmbeddedCluster,
        kubelets: dict[str, Kubelet],
        view: str,
        image_runtime: ImageRuntime | None = None,
        visible: list[str] | None = None,
    ) -> None:
        self.cluster, self.view, self._image_runtime = cluster, view, image_runtime
        self._visible = visible
        self._kubelets = kubelets
        self.caches: data_caches.DataCaches | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, state: Path) -> None:
        """Start the node's agent, or start it again."""
        nodes = machine.node_documents(1, machine.resources())
        served = agent.ProcessNodeAgent(
            self.cluster,
            nodes,
            state,
            runtime.utc_now,
            self.view,
            self._image_runtime,
            self.caches,
            self._visible,
        )
        self._kubelets[NODE] = self.node_agent = served
        self._serving = asyncio.create_task(served.run())

    async def stop(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])
            if not self._serving.cancelled():
                self._serving.result()

    async def run(self, name: str, *command: str, **spec: Any) -> None:
        """Create a pod on the node, with one container unless ``containers`` is given."""
        container = {"name": "main", "image": "none", "command": list(command)}
        container |= spec.pop("container", {})
        metadata = spec.pop("metadata", {})
        fields = {"restartPolicy": "Never", "containers": [container], "nodeName": NODE, **spec}
        await self.cluster.create(kinds.PODS, "default", objects.pod(name, metadata, **fields))

    async def until(self, name: str, wanted: Callable[[Document], object]) -> Document:
        """The pod when it is in the expected state; None stands for a deleted pod."""
        pod: Document = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(records.DEADLINE_S):
                async for event in list_and_watch(self.cluster, kinds.PODS):
                    if event is None or kinds.metadata_of(event.object).name != name:
                        continue
                    pod = objects.read(event.object)
                    if event.type == "DELETED":
                        pod = {}
                    if wanted(pod):
                        return pod
        raise AssertionError(f"not so: {pod}")

    async def over(self, name: str) -> Document:
        """The pod once it is over."""
        return await self.until(name, lambda it: phase(it) in ("Succeeded", "Failed"))

    async def first_event(self) -> Document:
        """The first Event of the node, which records it beside the pod's life: it may come after
        the pod's end.
        """
        async with asyncio.timeout(records.DEADLINE_S):
            async for event in list_and_watch(self.cluster, kinds.EVENTS):
                if event is not None:
                    return objects.read(event.object)
        raise AssertionError("the watch ended")

    async def log(self, name: str, container: str = "", **query: Any) -> str:
        requested = port.LogQuery(container=container, **query)
        async with self.cluster.logs("default", name, requested) as chunks:
            return b"".join([chunk async for chunk in chunks]).decode()


def phase(pod: Document) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def state(pod: Document, index: int = 0) -> Document:
    found: Document = pod["status"]["containerStatuses"][index]["state"]
    return found
