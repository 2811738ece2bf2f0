"""Twenty jobs from a seed: gangs of 2 to 4 pods that run for moments; some fail, some are pending
for a while.

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


def short_job(name: str) -> dict[str, Any]:
    """A gang of two pods that ends after a moment."""
    return _job(name, pods=2, run_s=0.3, ends="Completed")


def _job(name: str, *, pods: int, run_s: float, ends: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }
    annotations = {
        "stromboli.sh/run-seconds": f"{run_s:.2f}",
        "stromboli.sh/exit-code": "0" if ends == "Completed" else "1",
    }
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "metadata": {"name": name, "labels": {ENDS: ends}},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": pods,
            "tasks": [{"name": "main", "replicas": pods, "template": template}],
        },
    }


async def submit(url: str, namespace: str, documents: Sequence[dict[str, Any]]) -> None:
    """Hand jobs in at the same time, each until it is taken."""
    timeout = aiohttp.ClientTimeout(total=10)
    async with (
        aiohttp.ClientSession(base_url=url, timeout=timeout) as session,
        asyncio.TaskGroup() as group,
    ):
        for document in documents:
            group.create_task(_submit(session, url, namespace, document))


async def _submit(
    session: aiohttp.ClientSession, url: str, namespace: str, document: dict[str, Any]
) -> None:
    path = f"/v1/namespaces/{namespace}/jobs"
    while True:
        try:
            headers = authorization(url)  # each start of admission makes a token
            async with session.post(path, json=document, headers=headers) as answer:
                text = await answer.text()
                if answer.status in (201, EXISTS):
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
    """Jobs that ended as their label predicts."""
    return [job for job in jobs if phase(job) == job["metadata"]["labels"][ENDS]]


def phase(job: api_history.Object) -> str:
    """The phase in a job's status, or empty."""
    return str(job.get("status", {}).get("state", {}).get("phase", ""))
