"""Parameter servers beside their workers: the share of job traffic that stays inside a node.

Three jobs of 2 parameter servers and 4 workers fill three nodes. Each worker sends the same amount
to each server of its job, so the share equals the share of worker-server pairs on one node.
"""

import copy
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

from stromboli.embedded import system
from stromboli.embedded.demo import experiment
from stromboli.embedded.nodes import simulated
from stromboli.embedded.nodes.list_watch import list_and_watch
from stromboli.scheduler.core.config import config_reader
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import keys
from stromboli.shared.api import core, kinds

JOBS = 3
AFFINITY = {"volcano.sh/task-topology-affinity": "ps,worker"}


async def measure_traffic(state: Path) -> tuple[float, float]:
    """Return the share without and with the plugin ``task-topology``."""
    return await _share(state / "apart", None), await _share(state / "near", "task-topology")


def _options(state: Path, plugin: str | None) -> system.Options:
    """Return the options of a system with one additional plugin."""
    state.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = copy.deepcopy(dict(config_reader.DEFAULT))
    if plugin is not None:
        document["tiers"][-1]["plugins"].append({"name": plugin})
    configuration = state / "scheduler.yaml"
    configuration.write_bytes(msgspec.json.encode(document))  # JSON is valid YAML
    scheduler_settings = SchedulerSettings(configuration=str(configuration))
    return system.Options(state=state, scheduler=scheduler_settings)


async def _share(state: Path, plugin: str | None) -> float:
    async with system.run_system(_options(state, plugin)) as running:
        await running.ready()
        await _submit_jobs(running)
        nodes = simulated.node_documents(JOBS, cpu=str(experiment.PODS_OF_A_JOB), memory="8Gi")
        await simulated.create_nodes(running.cluster, nodes)
        return traffic_inside_nodes(await _placed(running))


async def _submit_jobs(running: system.System) -> None:
    manifests = [experiment.manifest(f"train-{number}") for number in range(1, JOBS + 1)]
    for each in manifests:
        each["metadata"]["annotations"] = AFFINITY
    async with running.client() as client:
        (await client.post("/v1/apply", json={"objects": manifests})).raise_for_status()


async def _placed(running: system.System) -> list[core.Pod]:
    """Return all pods once each of them is bound."""
    pods: dict[str, core.Pod] = {}
    async for event in list_and_watch(running.cluster, kinds.PODS):
        if event is not None:
            pod = kinds.PODS.decode(event.object)
            if pod.spec.node_name:
                pods[pod.metadata.name] = pod
        if len(pods) == JOBS * experiment.PODS_OF_A_JOB:
            break
    return list(pods.values())


def traffic_inside_nodes(pods: list[core.Pod]) -> float:
    """Return the share of worker-server pairs of a job that are on one node."""
    nodes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in pods:
        note = pod.metadata.annotation
        key = (note(keys.JOB_NAME) or "", note(keys.TASK_SPEC) or "")
        nodes[key].append(pod.spec.node_name)
    pairs = [
        (server, worker)
        for job in sorted({job for job, _ in nodes})
        for server in nodes[job, "ps"]
        for worker in nodes[job, "worker"]
    ]
    return sum(server == worker for server, worker in pairs) / len(pairs)
