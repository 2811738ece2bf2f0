"""Explanations of pending jobs over REST."""

import msgspec

from stromboli.admission.auth import authentication
from stromboli.admission.review.service import AdmissionService
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.shared.api.views.expected_start import ExpectedStart
from stromboli.shared.cluster.accounts import right
from stromboli.shared.messages.scheduling import PodGroupExplained

ACTIVE = ("Pending", "Running")
"""Phases in which pods of a job are created."""
HIDDEN = "(another namespace)"
"""Replaces the name of a PodGroup that the principal may not list."""


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """Why a job is pending. ``explained``: the scheduler's explanation, null once nothing blocks
    the job. ``in_front``: the PodGroups ahead of the job in the queue, null if its position is not
    known. ``held``: the error that prevents the creation of its pods, which the scheduler cannot
    know. ``expected``: the expected start, null if no forecast contains the job.
    """

    job: str
    phase: str
    pod_group: str
    explained: PodGroupExplained | None
    in_front: tuple[str, ...] | None = None
    held: str = ""
    expected: ExpectedStart | None = None


def of_deleted_job(job: str, uid: str) -> Explanation:
    """The explanation of a job that was deleted while no client was connected."""
    return Explanation(job, "", f"{job}-{uid}", None)


async def of(
    admission: AdmissionService, job: batch.Job, principal: authentication.Principal
) -> Explanation:
    """The current explanation of a job. Names of PodGroups in front of it are shown only to a
    principal that may list them. Raises TransientError if these rights cannot be checked now.
    """
    group = f"{job.metadata.key}-{job.metadata.uid}"
    known = admission.explanation(group)
    phase = job.status.state.phase or "Pending"
    pending_reason = _pending_reason(admission, job, phase)
    if known is None:
        return Explanation(job.metadata.key, phase, group, None, held=pending_reason)
    explained, in_front = known
    if in_front is not None:
        in_front = await _readable_names(in_front, principal)
    expected = admission.expected_start(group)
    return Explanation(
        job.metadata.key, phase, group, explained, in_front, pending_reason, expected
    )


def _pending_reason(admission: AdmissionService, job: batch.Job, phase: str) -> str:
    """The reason that the controller recorded on the job; for a job of another scheduler,
    NoScheduler."""
    if phase not in ACTIVE:
        return ""
    name, ours = job.spec.scheduler_name, admission.policy.scheduler_names
    if name in ours:
        return job.metadata.annotation(keys.HELD) or ""
    named = f"the job names the scheduler {name!r}" if name else "the job names no scheduler"
    return (
        f"NoScheduler: {named}, and only {' and '.join(ours)} are served here: to run it here, "
        "delete it and submit it again without a scheduler"
    )


async def _readable_names(
    pod_groups: tuple[str, ...], principal: authentication.Principal
) -> tuple[str, ...]:
    spaces = {name.partition("/")[0] for name in pod_groups}
    readable_namespaces = {
        space
        for space in spaces
        if await principal.is_allowed(right("list", kinds.POD_GROUPS, space))
    }
    return tuple(
        name if name.partition("/")[0] in readable_namespaces else HIDDEN for name in pod_groups
    )
