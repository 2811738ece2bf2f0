"""What keeps a job's pods from being made, noted on the job for as long as it does.

Kubernetes' Events say it, too, and are gone after an hour, while a job may wait for weeks. It is an
annotation and no field of the status: definitions of others would drop the field, and it would be
written again for ever.
"""

from collections.abc import Iterable

from stromboli.controller.core import commands, manifest
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Job


def reasons(told: Iterable[tuple[str, str]]) -> str:
    """Reasons and messages in one line; empty if there are none."""
    return "; ".join(f"{reason}: {message}" for reason, message in told)


def noted(job: Job, why: str) -> commands.Stage:
    """The write that notes it, or takes the note away if nothing does; none if it stands so."""
    before = job.metadata.annotation(keys.HELD) or ""
    if before == why:
        return ()
    if why:
        return (manifest.annotated(kinds.JOBS, job, keys.HELD, why),)
    return (manifest.unannotated(kinds.JOBS, job, keys.HELD),)
