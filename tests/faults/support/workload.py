"""Jobs from a seed: gangs of 2 to 4 pods that run for moments; some fail, some are pending for a
while. Beside them there is one job of each kind that depends on other objects or on policies: a job
that restarts until its retries are spent, a job that a policy completes, jobs that claim a volume
and a device, and a flow.

A user submits them over REST, retries while admission is down, and treats *already exists* as the
response to a repeated submission.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import aiohttp

from stromboli.testkit.rest_authorization import authorization
from tests.faults.support import api_history

NODES, CPUS = 3, 4
"""Room for twelve pods of one CPU at the same time: a fifth of what twenty jobs request."""
ENDS = "ends"
"""Label: the phase in which the job must end."""
RETRIES = {"restarting": 2}
"""Job -> the retryCount with which it must end; 0 for the others."""
KINDS = 6
"""How many jobs ``of_every_kind`` and ``flow`` make together."""
DEVICE_CLAIM = "device"
STORAGE_CLASS = "late"
PAUSE_S = 0.05
EXISTS = 409
UNREACHABLE = (401, 502, 503)


def jobs(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Manifests. One in six fails: it has no retries, so it must end as Failed and never again
    as anything else."""
    return [
        _job(
            f"gang-{index:02d}",
            pods=rng.randint(2, 4),
            run_s=rng.uniform(0.3, 1),
            ends="Failed" if rng.random() < 1 / 6 else "Completed",
        )
        for index in range(count)
    ]


def long_job(name: str) -> dict[str, Any]:
    """A gang of three that outlives every test."""
    return _job(name, pods=3, run_s=3600, ends="Completed")


def gang(name: str, *, pods: int, run_s: float) -> dict[str, Any]:
    """A gang of pods of one CPU."""
    return _job(name, pods=pods, run_s=run_s, ends="Completed")


def single_job(name: str, *, cpus: int, run_s: float) -> dict[str, Any]:
    """A job of one pod of so many CPUs."""
    made = _job(name, pods=1, run_s=run_s, ends="Completed")
    (task,) = made["spec"]["tasks"]
    (container,) = task["template"]["spec"]["containers"]
    container["resources"]["requests"]["cpu"] = str(cpus)
    return made


def short_job(name: str) -> dict[str, Any]:
    """A gang of two pods that ends after a moment."""
    return _job(name, pods=2, run_s=0.3, ends="Completed")


def of_every_kind() -> list[dict[str, Any]]:
    """Jobs with a restart policy, a policy that completes the job, a volume (and init containers
    that request more than their pods' containers), and a device. The last two take what
    ``claimable`` provides in their namespace."""
    restarting = _job("restarting", pods=2, run_s=0.3, ends="Failed")
    restarting["spec"] |= {
        "maxRetry": RETRIES["restarting"],
        "policies": [{"event": "PodFailed", "action": "RestartJob"}],
    }
    completing = _job("completing", pods=1, run_s=0.5, ends="Completed")
    completing["spec"]["minAvailable"] = 3
    (leader,) = completing["spec"]["tasks"]
    leader["policies"] = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    completing["spec"]["tasks"].append(_task("helper", pods=2, run_s=3600, exit_code=0))
    disk = _job("disk", pods=2, run_s=0.5, ends="Completed")
    claim = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": STORAGE_CLASS,
    }
    disk["spec"]["volumes"] = [{"mountPath": "/data", "volumeClaim": claim}]
    (task,) = disk["spec"]["tasks"]
    requests = {"cpu": "2", "memory": "64Mi"}
    first = {"name": "first", "image": "busybox", "resources": {"requests": requests}}
    task["template"]["spec"]["initContainers"] = [first]
    device = _job("device", pods=2, run_s=0.5, ends="Completed")
    (task,) = device["spec"]["tasks"]
    claims = [{"name": "card", "resourceClaimName": DEVICE_CLAIM}]
    task["template"]["spec"]["resourceClaims"] = claims
    return [restarting, completing, disk, device]


def flow(namespace: str, run_s: float = 0.3) -> list[dict[str, Any]]:
    """A flow of two jobs, the second after the first, with their templates."""
    templates = [
        _object("JobTemplate", namespace, name, _job(name, pods=2, run_s=run_s, ends="")["spec"])
        for name in ("first", "second")
    ]
    entries = [{"name": "first"}, {"name": "second", "dependsOn": {"targets": ["first"]}}]
    return [*templates, _object("JobFlow", namespace, "flow", {"flows": entries})]


def _object(kind: str, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "flow.volcano.sh/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def _job(name: str, *, pods: int, run_s: float, ends: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {ENDS: ends}},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": pods,
            "tasks": [_task("main", pods=pods, run_s=run_s, exit_code=int(ends == "Failed"))],
        },
    }


def _task(name: str, *, pods: int, run_s: float, exit_code: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }
    annotations = {
        "stromboli.sh/run-seconds": f"{run_s:.2f}",
        "stromboli.sh/exit-code": str(exit_code),
    }
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {"name": name, "replicas": pods, "template": template}


async def submit(url: str, namespace: str, documents: Sequence[dict[str, Any]]) -> None:
    """Submit jobs at the same time, each until it is accepted."""
    path = f"/v1/namespaces/{namespace}/jobs"
    async with asyncio.TaskGroup() as group:
        for document in documents:
            group.create_task(_submit(url, path, document))


async def apply(url: str, documents: Sequence[dict[str, Any]]) -> None:
    """Apply objects of any kind in one request, until it is accepted."""
    await _submit(url, "/v1/apply", {"objects": documents})


async def _submit(url: str, path: str, document: dict[str, Any]) -> None:
    timeout = aiohttp.ClientTimeout(total=10)
    while True:
        try:
            headers = authorization(url)  # each start of admission makes a token
            async with (
                aiohttp.ClientSession(base_url=url, timeout=timeout) as session,
                session.post(path, json=document, headers=headers) as answer,
            ):
                text = await answer.text()
                if answer.status in (200, 201, EXISTS):
                    return
                if answer.status not in UNREACHABLE:
                    raise AssertionError(f"refused with {answer.status}: {text}")
        except (aiohttp.ClientError, TimeoutError):
            pass  # it may have been accepted: then the next attempt reports that it exists
        await asyncio.sleep(PAUSE_S)


async def delete(url: str, namespace: str, job: str) -> None:
    """Delete a job with all that is its own."""
    async with (
        aiohttp.ClientSession(url, headers=authorization(url)) as session,
        session.delete(f"/v1/namespaces/{namespace}/jobs/{job}") as answer,
    ):
        answer.raise_for_status()


def ended_as_expected(jobs: Sequence[api_history.Object]) -> list[api_history.Object]:
    """Jobs that ended as their label predicts; jobs of a flow have no label and must complete."""
    return [job for job in jobs if phase(job) == job["metadata"]["labels"].get(ENDS, "Completed")]


def phase(job: api_history.Object) -> str:
    """The phase in the status of a job or flow, or empty."""
    return str(job.get("status", {}).get("state", {}).get("phase", ""))
