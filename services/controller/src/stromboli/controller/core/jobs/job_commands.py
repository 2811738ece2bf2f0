"""Executes a user command for a job: records it in the status, publishes it, then deletes it.

The status names the command until its next change, and nothing else is planned for the job before
the command is deleted. So a command is executed once.
"""

from datetime import datetime

from stromboli.controller.core import commands, lifecycle
from stromboli.controller.core.jobs import job_pods, status_transitions
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import tasks
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Command, Job, JobState
from stromboli.shared.jobspec import reason_words
from stromboli.shared.messages import batch as messages

SYNC = "SyncJob"
"""The command that only triggers a reconcile."""
KNOWN = tuple(it for it in lifecycle.ACTIONS if it not in lifecycle.PARTIAL)
"""Actions of user commands. A command names a job, so it cannot restart a part of it."""
_MARK = "command "


def is_user_requested(state: JobState) -> bool:
    """Whether a user command led to this phase."""
    return state.message.startswith(_MARK)


def carry_out(
    cache: controller_cache.ControllerCache,
    job: Job,
    user_command: Command,
    counts: tasks.Tally,
    now: datetime,
) -> commands.Plan:
    """Execute a command, or reject it with a reason."""
    delete = commands.Delete(
        kind=kinds.COMMANDS,
        namespace=user_command.metadata.namespace,
        name=user_command.metadata.name,
        uid=user_command.metadata.uid,
    )
    mark = f"{_MARK}{user_command.metadata.name}, {user_command.metadata.uid}"
    action = next((it for it in KNOWN if it == user_command.action), None)
    is_meant = user_command.target is None or user_command.target.uid in ("", job.metadata.uid)
    if job.status.state.message == mark or user_command.action == SYNC:
        command_accepted = messages.CommandAccepted(
            job=job.metadata.key,
            uid=job.metadata.uid,
            command=user_command.metadata.name,
            action=user_command.action,
            at=now if user_command.action == SYNC else job.status.state.last_transition_time or now,
        )
        text = reason_words.request_in_words(user_command.action)
        event = commands.event_about(
            kinds.JOBS, job, "Normal", "CommandIssued", text, command_accepted.at, recurs=True
        )
        publish = commands.Publish(
            job=job.metadata.key, message=command_accepted, at=command_accepted.at
        )
        return ((publish, event), (delete,))
    if action is not None and is_meant and lifecycle.accepts(tasks.phase_of(job), action):
        status = status_transitions.after(job, action, counts, now, mark)
        status = job_pods.status_ending_pods(cache, job, status)
        return ((commands.PatchJobStatus(job=job, status=status),),)
    why = _refusal(job, user_command, is_known=action is not None, is_meant=is_meant)
    event = commands.event_about(kinds.JOBS, job, "Warning", "CommandRefused", why, now)
    return ((event,), (delete,))


def _refusal(job: Job, user_command: Command, *, is_known: bool, is_meant: bool) -> str:
    if not is_meant:
        return f"{user_command.action} was issued for an earlier job of this name"
    if user_command.action in lifecycle.PARTIAL:
        return f"{user_command.action} acts on a part of the job, so only a policy can use it"
    if not is_known:
        return (
            f"{user_command.action!r} is not an action; supported are {', '.join((SYNC, *KNOWN))}"
        )
    return f"{user_command.action} has no effect in phase {job.status.state.phase or 'Pending'}"
