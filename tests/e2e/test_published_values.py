"""Literal values of environment variables reach the pods and no topic."""

import asyncio
import base64
import contextlib
import json
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from stromboli.client import server
from stromboli.embedded import state_folder
from stromboli.shared import keys, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import kafka
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.testkit.parts import tools
from stromboli.testkit.parts.kubernetes import OWNER_AND_TAINT_CONTROLLERS
from stromboli.testkit.real_system import RealSystem
from tests.e2e.support import configured_system as cells

TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: proportion}]
"""
MARKER = "s3cret-marker"
PRIVATE_KEY = f"{MARKER}-private-key"
HEADER = f"{MARKER}-header"
EXPECTED = {f"{MARKER}-of-the-{origin}" for origin in ("job", "cron", "template", "patch")}
WITHIN_S = 90.0


def spec(value: str, *, run_s: str = "600", **more: Any) -> dict[str, Any]:
    """One pod whose containers and init containers have the value."""
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": "100m"}},
        "env": [{"name": "PASSWORD", "value": value}],
    }
    template = {
        "metadata": {"annotations": {keys.RUN_SECONDS: run_s}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "initContainers": [{**container, "name": "first"}],
        },
    }
    return {"tasks": [{"name": "work", "replicas": 1, "template": template}], **more}


def document(kind: kinds.Kind[Any], name: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": content,
    }


def documents() -> list[dict[str, Any]]:
    """A job, a cron, and a flow with a template, a patch and a probe, each with values."""
    arguments = [f"--ssh-private-key={PRIVATE_KEY}", "--ssh-public-key=public"]
    header = {"name": "Authorization", "value": HEADER}
    requested = {"taskName": "work", "port": 80, "path": "/", "httpHeader": header}
    patched = {"jobSpec": spec(f"{MARKER}-of-the-patch")}
    entries = [
        {"name": "one"},
        {"name": "two", "patch": patched, "dependsOn": {"targets": ["one"]}},
        {"name": "three", "dependsOn": {"targets": ["two"], "probe": {"httpGetList": [requested]}}},
    ]
    own_job = spec(f"{MARKER}-of-the-job", plugins={"ssh": arguments, "svc": []})
    cron = {"schedule": "@every 5s", "jobTemplate": {"spec": spec(f"{MARKER}-of-the-cron")}}
    of_template = spec(f"{MARKER}-of-the-template", run_s="0.1")
    return [
        document(kinds.JOBS, "job", own_job),
        document(kinds.CRON_JOBS, "cron", {**cron, "concurrencyPolicy": "Replace"}),
        *(document(kinds.JOB_TEMPLATES, name, of_template) for name in ("one", "two", "three")),
        document(kinds.JOB_FLOWS, "flow", {"flows": entries}),
    ]


async def submit(url: str) -> None:
    """The job twice with one idempotency key: the second answer comes from the topic."""
    async with httpx.AsyncClient(**server.httpx_options(url, 30)) as http:
        job, *others = documents()
        for _ in range(2):
            answer = await http.post(
                "/v1/namespaces/default/jobs", json=job, headers={"Idempotency-Key": "once"}
            )
            assert answer.status_code == 201, answer.text
        answer = await http.post("/v1/apply", json={"objects": others})
        assert answer.status_code == 200, answer.text


async def values(cluster: port.Cluster) -> dict[str, set[str]]:
    """Value of the environment -> the pods that have it."""
    found: dict[str, set[str]] = {}
    for raw in (await cluster.list(kinds.PODS)).items:
        pod = json.loads(raw)
        for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
            for variable in container["env"]:
                if variable["name"] == "PASSWORD":
                    found.setdefault(variable["value"], set()).add(pod["metadata"]["name"])
    return found


async def until(cluster: port.Cluster, wanted: Callable[[dict[str, set[str]]], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not wanted(await values(cluster)):  # noqa: ASYNC110 - the test has no watch
            await asyncio.sleep(0.05)


async def check_pods(cluster: port.Cluster) -> None:
    """Every pod has its own value, and the Secret has the private key."""
    await until(cluster, lambda found: found.keys() >= EXPECTED)
    secret = json.loads(await cluster.get(kinds.SECRETS, "default", "job-ssh"))
    assert base64.b64decode(secret["data"]["id_rsa"]).decode() == PRIVATE_KEY


def check_records(records: Mapping[str, list[bytes]]) -> None:
    """Topic -> keys, headers and values of all its records."""
    read = (topics.JOBS, topics.CRON_JOBS, topics.JOB_TEMPLATES, topics.JOB_FLOWS)
    for topic in (*read, topics.PODS, topics.CHANGES, topics.ANSWERS, topics.REVIEWS):
        assert records[topic.name], topic.name
    marker = MARKER.encode()
    assert not {topic for topic, parts in records.items() if any(marker in it for it in parts)}


def of_file(folder: Path) -> dict[str, list[bytes]]:
    """All records of the embedded log."""
    found: dict[str, list[bytes]] = {}
    log = state_folder.embedded(folder) / state_folder.LOG
    with contextlib.closing(sqlite3.connect(log)) as database:
        rows = database.execute(
            "SELECT topics.name, key, headers, value FROM records JOIN topics ON topic = topics.id"
        )
        for topic, *parts in rows:
            raw = [part.encode() if isinstance(part, str) else part or b"" for part in parts]
            found.setdefault(topic.removeprefix("default."), []).append(b"\n".join(raw))
    return found


async def of_broker(bus: bus_port.Bus) -> dict[str, list[bytes]]:
    """All records on Kafka."""
    found: dict[str, list[bytes]] = {}
    async with contextlib.aclosing(bus.materialize(topics.ALL)) as batches:
        async for batch in batches:
            for record in batch.records:
                text = "\n".join((record.key, *record.headers.values())).encode()
                found.setdefault(record.topic.name, []).append(text + (record.value or b""))
            if batch.caught_up:
                return found
    raise AssertionError("the log ended")


async def test_no_record_has_a_value_of_the_environment_and_every_pod_has_its_own(
    tmp_path: Path,
) -> None:
    async with cells.running(tmp_path, "enqueue, allocate", TIERS) as cell:
        await submit(cell.url)
        await check_pods(cell.cluster)
        assert (await values(cell.cluster)).keys() <= EXPECTED  # the cron's pod is being replaced
    check_records(of_file(tmp_path))


@pytest.mark.real
async def test_no_record_has_a_value_on_the_real_parts_also_after_a_takeover(
    real_tools: tools.Tools, tmp_path: Path
) -> None:
    """The next controller reads what it lacks before it creates the cron's next job."""
    system = RealSystem(
        tmp_path,
        simulated_nodes=2,
        node_options=("--cpu", "8", "--memory", "16Gi"),
        controllers=OWNER_AND_TAINT_CONTROLLERS,
    )
    await system.start()
    try:
        settings = kafka.KafkaSettings(bootstrap=(system.parts.kafka_bootstrap,))
        account = KubernetesSettings(kubeconfig=str(system.parts.kubeconfig))
        async with KubernetesCluster(account) as cluster, kafka.KafkaBus(settings) as bus:
            await submit(system.url)
            await check_pods(cluster)
            of_cron = f"{MARKER}-of-the-cron"
            controller = system.services["controller"]
            await controller.kill()
            before = (await values(cluster)).get(of_cron, set())  # none while it is replaced
            await controller.start()
            await until(cluster, lambda found: bool(found.get(of_cron, set()) - before))
            assert (await values(cluster)).keys() <= EXPECTED
            check_records(await of_broker(bus))
    finally:
        await system.stop()
