"""Why a job ended, and whether another try can succeed. Pure."""

from collections.abc import Collection

import msgspec

from stromboli.client import phases
from stromboli.shared.api import batch
from stromboli.shared.api.views.task_history import TaskAttempt, TaskHistory

DISRUPTIONS = frozenset({"Preempted", "NodeLost", "Evicted"})
"""Causes outside of the job: another try can succeed."""
LIMITS = frozenset({"OOMKilled", "DeadlineExceeded"})
"""Limits of the job that another try with the same limits exceeds again."""
_SHOWN = 3


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a job. ``exit_codes``: ``task-index`` -> the exit code of its last attempt, None
    if it has none. ``message``: the text for a task's log and state."""

    phase: str
    message: str
    is_retryable: bool
    exit_codes: dict[str, int | None]

    @property
    def is_success(self) -> bool:
        """Whether the job is completed."""
        return self.phase == "Completed"


def ending(job: batch.Job, history: TaskHistory, final_exit_codes: Collection[int] = ()) -> Ending:
    """The end of a job. With one of ``final_exit_codes`` no other try is made.

    Not retryable: a limit of the job was exceeded, or a user terminated the job.
    """
    latest = history.latest
    failed = [each for each in latest if _is_failed(each)]
    causes = {each.reason for each in failed}
    phase = phases.phase_of(job)
    is_final = bool(causes & LIMITS) or any(each.exit_code in final_exit_codes for each in failed)
    if not failed and phase in ("Terminated", "Aborted"):
        is_final = True
    name = f"job {job.metadata.namespace or 'default'}/{job.metadata.name}"
    reasons = [_described(each) for each in failed[:_SHOWN]]
    if len(failed) > _SHOWN:
        reasons.append(f"{len(failed) - _SHOWN} more pods")
    if not reasons and (text := job.status.state.message):
        reasons.append(text)
    return Ending(
        phase=phase,
        message=f"{name} is {phase}" + (f": {'; '.join(reasons)}" if reasons else ""),
        is_retryable=not is_final,
        exit_codes={f"{each.task}-{each.index}": each.exit_code for each in latest},
    )


def _is_failed(attempt: TaskAttempt) -> bool:
    return attempt.state == "Failed" or bool(attempt.exit_code) or attempt.reason in DISRUPTIONS


def _described(attempt: TaskAttempt) -> str:
    code = "" if attempt.exit_code is None else f"exit code {attempt.exit_code}"
    facts = ", ".join(part for part in (attempt.reason, code, attempt.detail) if part)
    node = f" on {attempt.node}" if attempt.node else ""
    return f"pod {attempt.pod}{node}: {facts or attempt.state}"
