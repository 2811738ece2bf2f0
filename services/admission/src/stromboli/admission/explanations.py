"""Why a job waits, as REST says it."""

import msgspec

from stromboli.admission.door import Door
from stromboli.shared.api import batch
from stromboli.shared.messages.scheduling import PodGroupExplained


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """Why a job waits. ``explained`` is null once nothing is in its way, ``inFront`` if its place
    is not known."""

    job: str
    phase: str
    pod_group: str
    explained: PodGroupExplained | None
    in_front: tuple[str, ...] | None = None


def of(door: Door, job: batch.Job) -> Explanation:
    """What is known of the job now."""
    group = f"{job.metadata.key}-{job.metadata.uid}"
    known = door.explanation(group)
    phase = job.status.state.phase or "Pending"
    if known is None:
        return Explanation(job.metadata.key, phase, group, None)
    return Explanation(job.metadata.key, phase, group, *known)
