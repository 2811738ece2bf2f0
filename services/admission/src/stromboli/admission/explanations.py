"""Why a job waits, as REST says it."""

import msgspec

from stromboli.admission import asking
from stromboli.admission.door import Door
from stromboli.shared.api import batch, kinds
from stromboli.shared.cluster.accounts import right
from stromboli.shared.messages.scheduling import PodGroupExplained

HIDDEN = "(another namespace)"
"""Stands for a PodGroup whose name is not the asker's to know."""


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """Why a job waits. ``explained`` is null once nothing is in its way, ``inFront`` if its place
    is not known."""

    job: str
    phase: str
    pod_group: str
    explained: PodGroupExplained | None
    in_front: tuple[str, ...] | None = None


def nothing_of(job: str, uid: str) -> Explanation:
    """What is left to say of a job that went while nobody looked."""
    return Explanation(job, "", f"{job}-{uid}", None)


async def of(door: Door, job: batch.Job, asker: asking.Asker) -> Explanation:
    """What is known of the job now. Of what is in front of it the asker is told the names that
    they may list; the others just count. Raises TransientError if nobody can say what that is."""
    group = f"{job.metadata.key}-{job.metadata.uid}"
    known = door.explanation(group)
    phase = job.status.state.phase or "Pending"
    if known is None:
        return Explanation(job.metadata.key, phase, group, None)
    explained, in_front = known
    if in_front is not None:
        in_front = await _named(in_front, asker)
    return Explanation(job.metadata.key, phase, group, explained, in_front)


async def _named(pod_groups: tuple[str, ...], asker: asking.Asker) -> tuple[str, ...]:
    spaces = {name.partition("/")[0] for name in pod_groups}
    seen = {space for space in spaces if await asker.may(right("list", kinds.POD_GROUPS, space))}
    return tuple(name if name.partition("/")[0] in seen else HIDDEN for name in pod_groups)
