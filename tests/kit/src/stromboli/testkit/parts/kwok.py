"""KWOK: simulates the kubelets of fake nodes, so that bound pods run, end and are deleted.

The simulation is configured in stages.yaml beside this file; a test may provide its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from stromboli.testkit.parts import kubernetes, ports
from stromboli.testkit.parts.api import Api
from stromboli.testkit.parts.part import Part
from stromboli.testkit.parts.tools import Tools

STAGES = Path(__file__).with_name("stages.yaml")
FAKE = {"kwok.x-k8s.io/node": "fake"}
PARALLEL_STAGES = 16  # concurrent status writes; the default of 4 is slower than binding
PARALLEL_CREATIONS = 16


class Kwok(Part):
    """One KWOK controller for all nodes annotated `kwok.x-k8s.io/node: fake`."""

    name: ClassVar[str] = "kwok"

    def __init__(
        self,
        tools: Tools,
        state: Path,
        server: kubernetes.ApiServer,
        *,
        stages: Path = STAGES,
        detached: bool = False,
    ) -> None:
        """A KWOK controller of `server`. `stages`: a file of KWOK's Stage documents. Does not start
        it."""
        super().__init__(state, detached=detached)
        self._tools = tools
        self._server = server
        self._stages = stages

    async def prepare(self) -> None:
        """Write its configuration."""
        configuration = {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokConfiguration",
            "options": {
                "manageAllNodes": False,
                "manageNodesWithAnnotationSelector": "kwok.x-k8s.io/node=fake",
                "serverAddress": f"{ports.LOOPBACK}:{self.ports[0]}",
                "podPlayStageParallelism": PARALLEL_STAGES,
                "nodePlayStageParallelism": PARALLEL_STAGES,
                # No leases: `ControllerManager` does not judge simulated nodes by them, and KWOK
                # renews each every 10 s, 500 writes a second with 5,000 nodes.
                "nodeLeaseDurationSeconds": 0,
            },
        }
        self._configuration.write_text(json.dumps(configuration, indent=1))

    @property
    def _configuration(self) -> Path:
        return self.state / "kwok.yaml"

    def command(self) -> list[str]:
        """KWOK's command line."""
        return [
            self._tools.program("kwok"),
            f"--kubeconfig={self._server.kubeconfig(kubernetes.KWOK)}",
            f"--config={self._configuration}",
            f"--config={self._stages}",
        ]

    async def is_ready(self) -> bool:
        """True once it watches nodes."""
        return await kubernetes.answers_ok(f"http://{ports.LOOPBACK}:{self.ports[0]}/healthz")


def node(
    name: str,
    *,
    cpu: str = "32",
    memory: str = "256Gi",
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] = FAKE,
) -> dict[str, Any]:
    """A ready Node object, simulated by KWOK unless its annotations disable it."""
    room = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
            | dict(labels or {}),
            "annotations": dict(annotations),
        },
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


async def create_nodes(api: Api, count: int, *, prefix: str = "node", **room: Any) -> list[str]:
    """Create `count` nodes of `node`, named `prefix-0000`, ...; about 700 a second.

    They are ready and accept pods when this returns: admission taints each new node, and the node
    lifecycle controller, which must run, removes the taint. Returns their names, in order.
    """
    names = [f"{prefix}-{index:04d}" for index in range(count)]
    places = asyncio.Semaphore(PARALLEL_CREATIONS)

    async def create(name: str) -> None:
        async with places:
            await api.create("/api/v1/nodes", node(name, **room))

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(create(name))
    created = set(names)
    await api.until(
        "/api/v1/nodes",
        lambda nodes: (
            not any(
                _is_tainted(found)
                for found in nodes["items"]
                if found["metadata"]["name"] in created
            )
        ),
        timeout_s=60.0,
    )
    return names


def _is_tainted(node: Mapping[str, Any]) -> bool:
    taints = node["spec"].get("taints", ())
    return any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)
