"""The controller without four of its rules. Run as a process of its own in the controller's place.

It starts all jobs of a flow at once, binds pods before their claims are prepared, takes a task for
completed before its pods succeed, and creates two claims for each volume of a job.
"""

from collections.abc import Iterator, Sequence

import msgspec

from stromboli.controller import __main__ as controller
from stromboli.controller.core import commands
from stromboli.controller.core.decisions import decisions
from stromboli.controller.core.jobs import job_pods
from stromboli.controller.core.pods import volumes
from stromboli.controller.core.workloads import flows
from stromboli.controller.execution import claim_preparation
from stromboli.controller.execution.inflight_permits import InFlightPermit
from stromboli.controller.settings import Settings
from stromboli.shared import process
from stromboli.shared.api import flow
from stromboli.shared.api.batch import Job
from stromboli.shared.messages import scheduling as messages

MANY = 1000
single_claims = volumes.resources


async def unprepared(
    _: claim_preparation.ClaimPreparation,
    binds: Sequence[messages.Bind],
    group: str,
    permit: InFlightPermit,
) -> dict[str, decisions.ExecutionResult]:
    """As if all claims were there."""
    return {}


def all_succeeded(_: job_pods.JobPods, task: str) -> int:
    """More pods than any task has."""
    return MANY


def double_claims(job: Job) -> Iterator[commands.Create]:
    """The claims of a job, and those of a job that mounts its volumes at other paths."""
    moved = tuple(
        msgspec.structs.replace(it, mount_path=f"{it.mount_path}-again", volume_claim_name="")
        for it in job.spec.volumes
    )
    spec = msgspec.structs.replace(job.spec, volumes=moved)
    yield from single_claims(job)
    yield from single_claims(msgspec.structs.replace(job, spec=spec))


if __name__ == "__main__":
    # The rules that this process lacks.
    flows.Member.waits = flow.FlowDependsOn()  # type: ignore[assignment]
    claim_preparation.ClaimPreparation.prepare = unprepared  # type: ignore[assignment]
    job_pods.JobPods.succeeded_count = all_succeeded  # type: ignore[assignment]
    volumes.resources = double_claims
    process.start("controller", Settings, controller.main)
