"""REST's pages of jobs, with 100,000 jobs in the embedded cluster.

    python -m bench.rest_jobs [--jobs N]

The jobs have realistic templates (2 kB each) and are in 50 namespaces. Each page is read 100 times
in this process, from the route to the encoded body, without a socket. Prints p50 and p99 of the
wall clock and the smallest CPU time of this process, in milliseconds; ``first``: the first page
after the start, which orders the names. ``created_per_s``: jobs written, half of them while the
order is maintained.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec

from stromboli.admission.rest import application
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import kinds
from stromboli.shared.runtime import runtime
from stromboli.testkit.builders import make_job, make_task

RUNS = 100
TOGETHER = 1000
NAMESPACES = 50
PER_PAGE = 1000


def document() -> dict[str, Any]:
    """A job with a realistic template."""
    job = make_job("job", tasks=[make_task("worker", 4)])
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(job))
    container = found["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": f"SETTING_{number}", "value": "x" * 40} for number in range(12)]
    container["resources"] = {"requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": 1}}
    return found | {"apiVersion": kinds.JOBS.api_version, "kind": kinds.JOBS.kind}


async def fill(cluster: EmbeddedCluster, begin: int, end: int) -> float:
    """Create jobs; returns how many per second."""
    job, began = document(), time.perf_counter()
    for start in range(begin, end, TOGETHER):
        writes = []
        for number in range(start, min(end, start + TOGETHER)):
            space = f"team-{number % NAMESPACES}"
            # Names are not in the order of their creation.
            job["metadata"] = {
                "name": f"train-{number * 7919 % 1_000_003}",
                "namespace": space,
                "labels": {"team": space, "shard": str(number % 1000)},
            }
            writes.append(cluster.create(kinds.JOBS, space, msgspec.json.encode(job)))
        await asyncio.gather(*writes)
    return (end - begin) / (time.perf_counter() - began)


async def timed(client: httpx.AsyncClient, path: str, runs: int) -> dict[str, float]:
    """p50 and p99 of the wall clock and the smallest CPU time of a request, in milliseconds."""
    walls, cpus, size = [], [], 0
    for _ in range(runs):
        wall, cpu = time.perf_counter(), time.process_time()
        answer = await client.get(path)
        walls.append(1000 * (time.perf_counter() - wall))
        cpus.append(1000 * (time.process_time() - cpu))
        answer.raise_for_status()
        size = len(answer.content)
    walls.sort()
    return {
        "p50_ms": round(walls[len(walls) // 2], 1),
        "p99_ms": round(walls[min(len(walls) - 1, len(walls) * 99 // 100)], 1),
        "cpu_ms": round(min(cpus), 1),
        "bytes": size,
    }


async def deep(client: httpx.AsyncClient, jobs: int) -> str:
    """The token of a page behind nine tenths of the jobs."""
    token, left = "", jobs * 9 // 10
    while left >= PER_PAGE:
        query = {"limit": str(PER_PAGE), **({"continue": token} if token else {})}
        token = (await client.get("/v1/jobs", params=query)).json()["continue"]
        left -= PER_PAGE
    return token


async def measure(folder: Path, jobs: int) -> dict[str, Any]:
    """Fill the cluster and read pages."""
    async with EmbeddedCluster(folder / "cluster.db") as cluster:
        for number in range(NAMESPACES):
            space = {"apiVersion": "v1", "kind": "Namespace"}
            space["metadata"] = {"name": f"team-{number}"}  # type: ignore[assignment]
            await cluster.create(kinds.NAMESPACES, "", msgspec.json.encode(space))
        unordered_per_s = await fill(cluster, 0, jobs // 2)
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        app = application.app(application.routes(admission, cluster))
        transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]  # same ASGI, other types
        async with httpx.AsyncClient(transport=transport, base_url="http://rest") as client:
            first = await timed(client, "/v1/jobs?limit=100", 1)
            ordered_per_s = await fill(cluster, jobs // 2, jobs)
            token = await deep(client, jobs)
            pages = {
                "first_100": "/v1/jobs?limit=100",
                "first_500": "/v1/jobs?limit=500",
                "deep_100": f"/v1/jobs?limit=100&continue={token}",
                "of_a_namespace_100": "/v1/namespaces/team-41/jobs?limit=100",
            }
            found = {name: await timed(client, path, RUNS) for name, path in pages.items()}
    return {
        "jobs": jobs,
        "created_per_s": {"before": round(unordered_per_s), "ordered": round(ordered_per_s)},
        "first": first,
        "pages": found,
    }


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measure(Path(folder), given.jobs))))


if __name__ == "__main__":
    main()
