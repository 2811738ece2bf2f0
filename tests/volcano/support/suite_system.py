"""The cluster that Volcano's suites expect: its nodes, the load of each node, and the ConfigMap
with the scheduler's configuration, which the suites change.

Volcano runs its suites on four workers of a machine with four CPUs, and two of them beside tainted
nodes of KWOK. Here KWOK plays all nodes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from stromboli.shared.api import kinds
from stromboli.shared.jobspec.policies import manifests
from stromboli.testkit.parts import kubernetes, kwok
from stromboli.testkit.parts.api import Api
from stromboli.testkit.real_system import RealSystem
from tests.volcano.support import played_containers

NODES = 4
TAINTED_NODES = {"gangevict": 4, "hypernode": 8}
"""Suite -> the number of its tainted nodes."""
WITH_QUEUE_GATES = frozenset({"schedulinggates"})
"""Suites that Volcano runs with the feature gate SchedulingGatesQueueAdmission."""
NAMESPACE, CONFIG_MAP = "volcano-system", "integration-scheduler-configmap"
CONFIGURATION = "volcano-scheduler-ci.conf"
"""The file of Volcano's configuration, and its key in the ConfigMap."""
CHECK_S = 0.3
CONTROLLERS = (
    *kubernetes.OWNER_AND_TAINT_CONTROLLERS,
    "cronjob-controller",
    "replicationcontroller-controller",
    "pod-garbage-collector-controller",
)
TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
LOAD = {"cpu": "100m", "memory": "50Mi"}
"""Of the network agent that each node of Volcano's cluster has, the tainted ones too."""


@contextlib.asynccontextmanager
async def running(state: Path, suite: str, programs: Path) -> AsyncIterator[RealSystem]:
    """The system of a suite. ``state``: an existing folder; ``programs``: that of the suites."""
    configuration = (programs / CONFIGURATION).read_text()
    file = _Mounted(state / "scheduler.yaml")
    file.write(configuration)
    environment = {
        "STROM_SCHEDULER_CONFIGURATION": str(file.path),
        "STROM_SCHEDULER_CONFIGURATION_CHECK_S": str(CHECK_S),
    }
    if suite in WITH_QUEUE_GATES:
        groups = _Mounted(state / "resource-groups.yaml")
        groups.write("queueGates: true\n")
        environment["STROM_ADMISSION_RESOURCE_GROUPS_FILE"] = str(groups.path)
    system = RealSystem(
        state,
        environment=environment,
        controllers=CONTROLLERS,
        stages=played_containers.write(state / "stages.yaml"),
    )
    program, folder = str(programs / "kube-scheduler"), state / "kube-scheduler"
    others = kubernetes.Scheduler(program, folder, system.parts.api_server)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(system)
        api = await stack.enter_async_context(system.parts.client())
        stack.push_async_callback(others.stop)
        await others.start()
        await _set_up(api, TAINTED_NODES.get(suite, 0), configuration)
        async with asyncio.TaskGroup() as group:
            mounted = group.create_task(_mount(api, file))
            yield system
            mounted.cancel()


async def _set_up(api: Api, tainted: int, configuration: str) -> None:
    names = await kwok.create_nodes(api, NODES, prefix="worker", cpu="4", memory="16Gi")
    for index in range(tainted):
        node = kwok.node(f"kwok-node-{index}", cpu="8", memory="8Gi", labels={"type": "kwok"})
        await api.create("/api/v1/nodes", node | {"spec": {"taints": [TAINT]}})
        names.append(node["metadata"]["name"])
    for document in manifests.documents(kinds.PODS.plural):
        kind = kinds.BY_NAME[document["apiVersion"], document["kind"]]
        await api.create(kind.path(), document)
    await api.until_namespace_takes_pods("kube-system")
    for name in names:
        await api.create("/api/v1/namespaces/kube-system/pods", _load(name))
    await api.create_namespace(NAMESPACE)
    document = {"metadata": {"name": CONFIG_MAP}, "data": {CONFIGURATION: configuration}}
    await api.create(f"/api/v1/namespaces/{NAMESPACE}/configmaps", document)


def _load(node: str) -> dict[str, Any]:
    container = {"name": "agent", "image": "agent", "resources": {"requests": LOAD}}
    spec = {"nodeName": node, "containers": [container]}
    return {"metadata": {"name": f"agent-{node}"}, "spec": spec}


class _Mounted:
    """A file that changes as one that a kubelet mounts: as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = ""

    def write(self, text: str) -> None:
        """Replace the file if its content differs."""
        if text != self._written:
            partial = self.path.with_suffix(".part")
            partial.write_text(text)
            partial.rename(self.path)
            self._written = text


async def _mount(api: Api, file: _Mounted) -> None:
    """Write the ConfigMap to the scheduler's file whenever it changes."""
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{CONFIG_MAP}"
    while True:
        file.write((await api.get(path))["data"][CONFIGURATION])
        await asyncio.sleep(CHECK_S)
