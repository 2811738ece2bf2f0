"""The phases of jobs, and why a job is in its phase. Pure."""

from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.jobspec import policy_event_names
from stromboli.shared.jobspec.reason_words import attempt_in_words, in_words

__all__ = (
    "ENDS",
    "FINAL",
    "PHASES",
    "attempt_in_words",
    "failed_pods",
    "in_words",
    "phase_of",
    "reason_of",
)

PHASES = (
    "Pending",
    "Aborting",
    "Aborted",
    "Running",
    "Restarting",
    "Completing",
    "Completed",
    "Terminating",
    "Terminated",
    "Failed",
)
ENDS = frozenset({"Completed", "Failed", "Aborted", "Terminated"})
"""Phases that a job leaves only by a command."""
FINAL = ENDS - {"Aborted"}
"""``ENDS`` without the phase of a suspended job, which can be resumed."""


def phase_of(job: batch.Job) -> str:
    """The phase; Pending before the first reconciliation."""
    return job.status.state.phase or "Pending"


def reason_of(job: batch.Job) -> str:
    """Why the job is in its phase, in plain words; empty where the phase says it."""
    hold_reason = job.metadata.annotation(keys.HELD)
    if hold_reason and phase_of(job) == "Pending":
        return hold_reason
    return in_words(job.status.state.reason, job.status.state.message)


def failed_pods(job: batch.Job, total: int, succeeded: int, failed: int) -> int:
    """How many of ``total`` pods or indexes have failed. If the time limit ended the job, all that
    have not succeeded count as failed: their pods are deleted, so its status counts them in no
    state."""
    is_late = job.status.state.reason == policy_event_names.DEADLINE_EXCEEDED
    is_overdue = is_late and phase_of(job) == "Failed"
    return max(failed, total - succeeded) if is_overdue else failed
