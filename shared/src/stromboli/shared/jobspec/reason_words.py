"""Reasons of phases and attempts in plain words, as users see them. Pure.

The codes are those of a job's status and of ``batch.events``, which are for programs.
"""

from collections.abc import Mapping

from stromboli.shared.jobspec import policy_event_names

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
"""Reason of an attempt -> its words; reasons of Kubernetes, such as OOMKilled, are not in it."""
_OF_COMMAND, _REQUESTED = "command ", " was requested"


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


def request_in_words(action: str) -> str:
    """The action of a user's command, in plain words with its name."""
    done = DONE.get(action)
    return f"{done} by a user ({action})" if done else f"{action}{_REQUESTED}"


def attempt_in_words(reason: str, detail: str) -> str:
    """Why an attempt ended, in plain words. ``detail``: why its pod was evicted."""
    return detail or _OF_ATTEMPT.get(reason, reason)
