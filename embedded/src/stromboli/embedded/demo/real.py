"""Real jobs on process nodes: their commands run on this machine and communicate with each other.

The manifests are in ``jobs/``; those in ``examples/`` link to them.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stromboli.embedded import system
from stromboli.embedded.nodes.list_watch import list_and_watch
from stromboli.embedded.processes import machine
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.formats import documents

MANIFESTS = Path(__file__).parent / "jobs"
NODES = 2
LIMIT_S = 25.0
"""Time limit for all jobs; on an idle machine they take three seconds."""
SHOWN = {
    "ring": "4 processes add up their vectors in a ring: none can finish without the others",
    "mpi": "a master collects the ranks of the workers in its host file, and then ends the job",
    "pytorch": "3 processes fit a line with MASTER_ADDR and RANK, averaging their gradients",
}
PRINTED_BY = {"ring": "ring-worker-", "mpi": "mpi-mpimaster-", "pytorch": "pytorch-"}
PROOF = {"ring": "sums are right", "mpi": "collected 2 ranks", "pytorch": "y = 3.00 x + 1.00"}
"""Text that the output must contain."""
FINAL = ("Completed", "Failed", "Aborted", "Terminated")


class JobResult(msgspec.Struct, frozen=True):
    """The result of a job. ``lines``: output of its pods."""

    name: str
    phase: str
    lines: tuple[str, ...]


class RealJobsResult(msgspec.Struct, frozen=True):
    """The results of all jobs. ``left_out``: why some were not run; empty if all ran."""

    ran: tuple[JobResult, ...]
    left_out: str = ""

    @property
    def failures(self) -> list[str]:
        """Return the expectations that were not met."""
        return [
            f"the job {job.name} is {job.phase} and its output does not contain {PROOF[job.name]!r}"
            for job in self.ran
            if job.phase != "Completed" or not any(PROOF[job.name] in line for line in job.lines)
        ]


async def show(state: Path, limit_s: float = LIMIT_S) -> RealJobsResult:
    """Run all jobs concurrently and read their output. ``limit_s``: how long they may take."""
    try:
        machine.check()
    except machine.UnsupportedMachineError as error:
        return RealJobsResult((), str(error))
    nodes = machine.node_documents(NODES, machine.resources())
    async with system.run_system(
        system.Options(state=state, process_nodes=tuple(nodes))
    ) as running:
        await running.ready()
        kind, reason = running.view
        # The manifest of mpi mounts files at absolute paths, which requires namespaces.
        names = [name for name in SHOWN if kind != "plain" or name != "mpi"]
        manifests = [each for name in names for each in read(name)]
        async with running.client() as client:
            answer = await client.post("/v1/apply", json={"objects": manifests})
            answer.raise_for_status()
        phases = await _phases(running.cluster, set(names), limit_s)
        ran = [
            JobResult(name, phases.get(name, "unfinished"), await _lines(running.cluster, name))
            for name in names
        ]
    missing = f"mpi needs namespaces, and this machine allows none: {reason}"
    return RealJobsResult(tuple(ran), missing if kind == "plain" else "")


def read(name: str) -> list[dict[str, Any]]:
    """Return the manifests of a job."""
    text = (MANIFESTS / f"{name}.yaml").read_text()
    return [document for document, _ in documents.read(text)]


async def _phases(
    cluster: cluster_port.Cluster, names: set[str], limit_s: float
) -> Mapping[str, str]:
    """Return job -> final phase for jobs that reached one in time."""
    phases: dict[str, str] = {}
    try:
        async with asyncio.timeout(limit_s):
            async for event in list_and_watch(cluster, kinds.JOBS):
                if event is not None:
                    job = kinds.JOBS.decode(event.object)
                    if job.status.state.phase in FINAL:
                        phases[job.metadata.name] = job.status.state.phase
                if names <= phases.keys():
                    break
    except TimeoutError:
        pass
    return phases


async def _lines(cluster: cluster_port.Cluster, job: str) -> tuple[str, ...]:
    output: list[str] = []
    for raw in (await cluster.list(kinds.PODS, "default", {keys.JOB_NAME: job})).items:
        pod = kinds.metadata_of(raw).name
        if pod.startswith(PRINTED_BY[job]):
            async with cluster.logs("default", pod, cluster_port.LogQuery()) as chunks:
                text = b"".join([chunk async for chunk in chunks]).decode(errors="replace")
            output += [f"{pod}: {line}" for line in text.splitlines()]
    return tuple(output)
