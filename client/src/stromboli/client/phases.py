"""The phases of jobs, and why a job is in its phase. Pure."""

from collections.abc import Mapping

from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.jobspec import policy_event_names

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
DONE: Mapping[str, str] = {
    "AbortJob": "suspended",
    "ResumeJob": "resumed",
    "RestartJob": "restarted",
    "RestartTask": "task restarted",
    "RestartPod": "pod restarted",
    "RestartPartition": "partition restarted",
    "TerminateJob": "terminated",
    "CompleteJob": "completed",
    "QueueChanged": "moved",
}
"""Action of a command or a policy, or a change of the queue -> what it did."""
_WORDS: Mapping[str, str] = {
    "Accepted": "",
    "Started": "",
    "Succeeded": "",
    "Cleared": "",
    "FellShort": "too few pods run",
    "Failed": "too few pods succeeded",
    "Exhausted": "no retry is left",
    "Stopped": "its pods have ended",
}
"""Reason in a job's status -> its words; empty where the phase says it."""
_OF_ATTEMPT: Mapping[str, str] = {
    **DONE,
    "Cancelled": "cancelled",
    "Deleted": "its pod was deleted",
    "JobCompleted": "the job has completed",
    "JobFailed": "the job has failed",
    "JobTerminated": "the job was terminated",
    "QueueChanged": "moved to another queue",
    "Restarted": "restarted",
    "ScaledDown": "the job was scaled down",
    policy_event_names.DEADLINE_EXCEEDED: "the time limit has passed",
}
"""Reason of an attempt -> its words; reasons of Kubernetes, as OOMKilled, are not in it."""
_OF_COMMAND, _REQUESTED = "command ", " was requested"
FINAL = ENDS - {"Aborted"}
"""``ENDS`` without the phase of a suspended job, which can be resumed."""


def phase_of(job: batch.Job) -> str:
    """The phase; Pending before the first reconciliation."""
    return job.status.state.phase or "Pending"


def reason_of(job: batch.Job) -> str:
    """Why the job is in its phase, in plain words; empty where the phase says it."""
    held = job.metadata.annotation(keys.HELD)
    if held and phase_of(job) == "Pending":
        return held
    return in_words(job.status.state.reason, job.status.state.message)


def in_words(reason: str, message: str) -> str:
    """The reason and message of a phase in plain words."""
    action, requested, _ = message.partition(_REQUESTED)
    if message.startswith(_OF_COMMAND):
        action, requested = reason, _REQUESTED
    if requested and action in DONE:
        return f"{DONE[action]} by a user"
    if reason in DONE:
        return ": ".join(filter(None, (DONE[reason], message)))
    if reason == policy_event_names.DEADLINE_EXCEEDED:
        return "the time limit has passed"
    before, colon, why = message.partition(": ")
    if colon and before in DONE:
        return f"{DONE[before]}: {why}"
    return message or _WORDS.get(reason, reason)


def attempt_in_words(reason: str, detail: str) -> str:
    """Why an attempt ended, in plain words. ``detail``: why its pod was evicted."""
    return detail or _OF_ATTEMPT.get(reason, reason)


def failed_pods(job: batch.Job, total: int, succeeded: int, failed: int) -> int:
    """How many of ``total`` pods or indexes have failed: of a job that its time limit ended all
    that have not succeeded. Their pods are deleted, so its status counts them in no state."""
    is_late = job.status.state.reason == policy_event_names.DEADLINE_EXCEEDED
    is_overdue = is_late and phase_of(job) == "Failed"
    return max(failed, total - succeeded) if is_overdue else failed
