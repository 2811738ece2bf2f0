"""Literal values of environment variables reach the pods and no topic."""

import base64
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx

from stromboli.client import server
from stromboli.embedded import state_folder
from stromboli.shared import keys, topics
from stromboli.shared.api import kinds
from tests.e2e.support import configured_system as cells

TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: proportion}]
"""
MARKER = "s3cret-marker"
PRIVATE_KEY = f"{MARKER}-private-key"
HEADER = f"{MARKER}-header"


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
    asked = {"taskName": "work", "port": 80, "path": "/", "httpHeader": header}
    patched = {"jobSpec": spec(f"{MARKER}-of-the-patch")}
    entries = [
        {"name": "one"},
        {"name": "two", "patch": patched, "dependsOn": {"targets": ["one"]}},
        {"name": "three", "dependsOn": {"targets": ["two"], "probe": {"httpGetList": [asked]}}},
    ]
    own_job = spec(f"{MARKER}-of-the-job", plugins={"ssh": arguments, "svc": []})
    cron = {"schedule": "@every 1s", "jobTemplate": {"spec": spec(f"{MARKER}-of-the-cron")}}
    of_template = spec(f"{MARKER}-of-the-template", run_s="0.1")
    return [
        document(kinds.JOBS, "job", own_job),
        document(kinds.CRON_JOBS, "cron", {**cron, "concurrencyPolicy": "Forbid"}),
        *(document(kinds.JOB_TEMPLATES, name, of_template) for name in ("one", "two", "three")),
        document(kinds.JOB_FLOWS, "flow", {"flows": entries}),
    ]


def published(folder: Path) -> dict[str, list[bytes]]:
    """Topic -> keys, headers and values of all its records."""
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


async def test_no_record_has_a_value_of_the_environment_and_every_pod_has_its_own(
    tmp_path: Path,
) -> None:
    async with cells.running(tmp_path, "enqueue, allocate", TIERS) as cell:
        async with httpx.AsyncClient(**server.httpx_options(cell.url, 30)) as http:
            job, *others = documents()
            for _ in range(2):  # the second answer comes from admission.answers
                answer = await http.post(
                    "/v1/namespaces/default/jobs", json=job, headers={"Idempotency-Key": "once"}
                )
                assert answer.status_code == 201, answer.text
            answer = await http.post("/v1/apply", json={"objects": others})
            assert answer.status_code == 200, answer.text

        async def values() -> set[str]:
            pods = [json.loads(raw) for raw in (await cell.cluster.list(kinds.PODS)).items]
            return {
                variable["value"]
                for pod in pods
                for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"])
                for variable in container["env"]
                if variable["name"] == "PASSWORD"
            }

        origins = ("job", "cron", "template", "patch")
        expected = {f"{MARKER}-of-the-{origin}" for origin in origins}
        await cell.until(values, lambda found: found >= expected)
        assert await values() == expected
        secret = json.loads(await cell.cluster.get(kinds.SECRETS, "default", "job-ssh"))
        assert base64.b64decode(secret["data"]["id_rsa"]).decode() == PRIVATE_KEY
    records = published(tmp_path)
    read = (topics.JOBS, topics.CRON_JOBS, topics.JOB_TEMPLATES, topics.JOB_FLOWS)
    for topic in (*read, topics.PODS, topics.CHANGES, topics.ANSWERS, topics.REVIEWS):
        assert records[topic.name], topic.name
    leaks = {topic for topic, parts in records.items() for part in parts if MARKER.encode() in part}
    assert not leaks
