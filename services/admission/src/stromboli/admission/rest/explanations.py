"""Why a job waits, as REST says it."""

import msgspec

from stromboli.admission.auth import principal
from stromboli.admission.review.service import AdmissionService
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.shared.cluster.accounts import right
from stromboli.shared.messages.scheduling import PodGroupExplained

ACTIVE = ("Pending", "Running")
"""Phases in which pods of a job are made."""
HIDDEN = "(another namespace)"
"""Stands for a PodGroup whose name is not the asker's to know."""


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """Why a job waits. ``explained`` is what the scheduler says, null once nothing is in its way;
    ``inFront`` is null if its place is not known. ``held``: what keeps its pods from being made at
    all, which the scheduler cannot know."""

    job: str
    phase: str
    pod_group: str
    explained: PodGroupExplained | None
    in_front: tuple[str, ...] | None = None
    held: str = ""


def nothing_of(job: str, uid: str) -> Explanation:
    """What is left to say of a job that went while nobody looked."""
    return Explanation(job, "", f"{job}-{uid}", None)


async def of(door: AdmissionService, job: batch.Job, asker: principal.Principal) -> Explanation:
    """What is known of the job now. Of what is in front of it the asker is told the names that
    they may list; the others just count. Raises TransientError if nobody can say what that is."""
    group = f"{job.metadata.key}-{job.metadata.uid}"
    known = door.explanation(group)
    phase = job.status.state.phase or "Pending"
    held = _held(door, job, phase)
    if known is None:
        return Explanation(job.metadata.key, phase, group, None, held=held)
    explained, in_front = known
    if in_front is not None:
        in_front = await _named(in_front, asker)
    return Explanation(job.metadata.key, phase, group, explained, in_front, held)


def _held(door: AdmissionService, job: batch.Job, phase: str) -> str:
    """What the controller noted on the job; of a job of others that nobody here takes it."""
    if phase not in ACTIVE:
        return ""
    name, ours = job.spec.scheduler_name, door.policy.scheduler_names
    if name in ours:
        return job.metadata.annotation(keys.HELD) or ""
    named = f"it names the scheduler {name!r}" if name else "it names no scheduler"
    return (
        f"NoScheduler: {named}, and only {' and '.join(ours)} are served here: to run it here, "
        "delete it and submit it again without a scheduler"
    )


async def _named(pod_groups: tuple[str, ...], asker: principal.Principal) -> tuple[str, ...]:
    spaces = {name.partition("/")[0] for name in pod_groups}
    seen = {space for space in spaces if await asker.may(right("list", kinds.POD_GROUPS, space))}
    return tuple(name if name.partition("/")[0] in seen else HIDDEN for name in pod_groups)
