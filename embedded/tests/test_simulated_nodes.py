"""Simulated nodes beside an API server that is stricter and less tidy than the embedded one."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.embedded.nodes import rules, simulated
from stromboli.shared import errors, keys
from stromboli.shared.api import core, kinds
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.jobspec import debug_tools
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders


class UntidyCluster(EmbeddedCluster):
    """Repeats the first change of a pod with the next event after its end, and lets no ended pod
    run again.
    """

    async def watch(self, kind: Any, version: str) -> AsyncGenerator[cluster_port.WatchEvent, None]:
        first: dict[str, cluster_port.WatchEvent] = {}
        late: list[cluster_port.WatchEvent] = []
        async for event in super().watch(kind, version):
            while late:
                yield late.pop()
            yield event
            if kind == kinds.PODS and event.type == "MODIFIED":
                pod = kinds.PODS.decode(event.object)
                first.setdefault(pod.metadata.uid, event)
                if pod.status.phase == "Succeeded":
                    late.append(first[pod.metadata.uid])

    async def patch(self, kind: Any, namespace: str, name: str, patch: bytes, **how: Any) -> bytes:
        if kind == kinds.PODS and how.get("subresource") == "status":
            stored = kinds.PODS.decode(await self.get(kind, namespace, name))
            wanted = msgspec.json.decode(patch)["status"]["phase"]
            if stored.status.phase == "Succeeded" and wanted == "Running":
                raise errors.InvalidError(f"patch Pod {name}", "state: may not be transitioned")
        return await super().patch(kind, namespace, name, patch, **how)


async def _run_a_pod(
    cluster: EmbeddedCluster, name: str, run_s: float = 0, **spec: Any
) -> core.Pod:
    """Return it once it has ended."""
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {keys.RUN_SECONDS: str(run_s)}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never", **spec},
    }
    raw = await cluster.create(kinds.PODS, "default", msgspec.json.encode(document))
    metadata = kinds.metadata_of(raw)
    events = cluster.watch(kinds.PODS, metadata.resource_version)
    await cluster.bind("default", name, uid=metadata.uid, node="node-00", annotations={})
    async for event in events:
        pod = kinds.PODS.decode(event.object)
        if pod.metadata.name == name and pod.status.phase in ("Succeeded", "Failed"):
            return pod
    raise AssertionError("the watch ended")


async def test_an_old_event_of_an_ended_pod_stops_no_other(tmp_path: Path) -> None:
    async with asyncio.timeout(60), UntidyCluster(tmp_path / "cluster.db") as cluster:
        documents = simulated.node_documents(1, cpu="4", memory="8Gi")
        await simulated.create_nodes(cluster, documents)
        runner = simulated.Runner(cluster, rules.Rules(), runtime.utc_now)
        running = asyncio.create_task(runner.run())
        for name in ("first", "second"):
            assert (await _run_a_pod(cluster, name)).status.phase == "Succeeded"
        assert not running.done()
        running.cancel()


async def test_a_pod_ends_when_it_was_active_for_as_long_as_it_may(tmp_path: Path) -> None:
    """Like a kubelet, also if its containers would be restarted."""
    async with asyncio.timeout(60), EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        await simulated.create_nodes(cluster, simulated.node_documents(1, cpu="4", memory="8Gi"))
        runner = simulated.Runner(cluster, rules.Rules(), runtime.utc_now)
        running = asyncio.create_task(runner.run())
        for name, again in (("once", "Never"), ("again", "Always")):
            limited = {"activeDeadlineSeconds": 1, "restartPolicy": again}
            pod = await _run_a_pod(cluster, name, 1000, **limited)
            assert (pod.status.phase, pod.status.reason) == ("Failed", "DeadlineExceeded")
        running.cancel()


async def test_an_ended_pod_has_the_times_of_bind_start_and_end(tmp_path: Path) -> None:
    """A kubelet leaves others' conditions as they are."""
    async with asyncio.timeout(60), EmbeddedCluster(tmp_path / "cluster.db") as cluster:
        await simulated.create_nodes(cluster, simulated.node_documents(1, cpu="4", memory="8Gi"))
        runner = simulated.Runner(cluster, rules.Rules(), runtime.utc_now)
        running = asyncio.create_task(runner.run())
        pod = await _run_a_pod(cluster, "first")
        running.cancel()
        document = msgspec.json.decode(await cluster.get(kinds.PODS, "default", "first"))
    conditions = {it.type: it.status for it in pod.status.conditions}
    assert conditions == {"PodScheduled": "True", "Ready": "False", "ContainersReady": "False"}
    (container,) = document["status"]["containerStatuses"]
    assert {"startedAt", "finishedAt"} < container["state"]["terminated"].keys()


def test_an_error_in_a_rule_file_names_its_line_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    for text, said in (
        ("default: [", "2: not YAML: did not find expected node content"),
        ("default: {runSecond: 1}", " Object contains unknown field `runSecond` - at `$.default`"),
    ):
        file.write_text(f"{text}\n")
        with pytest.raises(ValueError, match=r"rules\.yaml") as caught:
            rules.read_rules(file)
        assert str(caught.value) == f"{file}:{said}"


def test_a_debug_tool_runs_until_it_is_deleted_unless_a_rule_matches_it() -> None:
    """A command would end; a tool serves its users."""
    tool = builders.make_pod("j1-terminal", labels={keys.TOOL: "terminal"})
    command = builders.make_pod("j1-worker-0")
    assert rules.outcome(command, rules.Rules()).run_seconds == 1
    assert rules.outcome(tool, rules.Rules()).run_seconds > debug_tools.LONGEST_S
    brief = rules.Rules(rules=(rules.Rule(run_seconds=2),))
    assert rules.outcome(tool, brief).run_seconds == 2
