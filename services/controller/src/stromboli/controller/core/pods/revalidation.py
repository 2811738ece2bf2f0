"""The rules of admission once more, for what came in while no door stood there.

Only a job that has not begun is asked: what runs was right when it began, and rules that a new
version adds must not stop it.
"""

from collections.abc import Iterator

import msgspec

from stromboli.controller.core.pods import volumes
from stromboli.shared.api.batch import Job
from stromboli.shared.jobspec.validation import jobs as rules
from stromboli.shared.messages.admission import Violation

NOT_BEGUN = ("", "Pending")


def refusals(job: Job) -> Iterator[Violation]:
    """Everything that the door would have refused in the job itself. About 30 us a task."""
    if job.status.version == 0 and job.status.state.phase in NOT_BEGUN:
        yield from rules.validate_alone(_as_submitted(job))


def _as_submitted(job: Job) -> Job:
    """The job without the names of claims that were made for it and written back."""
    as_written = tuple(
        msgspec.structs.replace(it, volume_claim_name="")
        if it.volume_claim_name == volumes.name_for(job, it)
        else it
        for it in job.spec.volumes
    )
    spec = msgspec.structs.replace(job.spec, volumes=as_written)
    return msgspec.structs.replace(job, spec=spec)
