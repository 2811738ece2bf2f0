"""Human-readable messages about changes of a job."""

from collections.abc import Sequence

import msgspec

from stromboli.controller.core import lifecycle, termination_causes
from stromboli.controller.core.jobs import job_commands
from stromboli.controller.core.tasks import tasks
from stromboli.shared.api import batch, core
from stromboli.shared.jobspec import reason_words
from stromboli.shared.messages import batch as messages


def of_event(
    job: batch.Job,
    event: lifecycle.Event,
    facts: lifecycle.LifecycleInputs,
    pods: Sequence[core.Pod],
) -> str:
    """The cause of a life-cycle event; empty where the event's name states it."""
    match event:
        case "Failed":
            return "; ".join(filter(None, (lifecycle.shortfall(facts), _first_failure(job, pods))))
        case "FellShort":
            up = facts.running + facts.succeeded + facts.failed
            short = f"{up} of {facts.starts_with} needed pods are running or have ended"
            evicted = (termination_causes.detail(pod) for pod in pods)
            return "; ".join(filter(None, (short, next(filter(None, evicted), ""))))
        case "Exhausted":
            begun_by = reason_words.in_words("", _begun_by(job))
            return f"maxRetry {facts.max_retry} is reached; {begun_by}"
        case "Cleared" | "Stopped":
            return _begun_by(job)
        case _:
            return ""


def of_phase(message: messages.JobPhaseChanged) -> str:
    """A one-line description of a phase change."""
    by_state = msgspec.structs.asdict(message.counts)
    pod_counts = ", ".join(f"{count} {name}" for name, count in by_state.items() if count)
    text = f"from {message.before or 'nothing'} to {message.after}"
    why = reason_words.in_words(message.reason, message.message)
    text += f" ({why})" if why else ""
    text += _tried(message)
    noun = "pod" if sum(by_state.values()) == 1 else "pods"
    return f"{text}: {pod_counts or 'no'} {noun}"


def _tried(message: messages.JobPhaseChanged) -> str:
    """The number of the attempt. During a restart it is the number of the failed attempt, since the
    next attempt begins only when its pods are created."""
    if not message.retry_count:
        return ""
    if message.after == "Restarting" or message.reason == "Exhausted":
        return f", after attempt {message.retry_count}"
    return f", attempt {message.retry_count + 1}"


def _begun_by(job: batch.Job) -> str:
    state = job.status.state
    if job_commands.is_user_requested(state):
        return f"{state.reason} was requested"
    return ": ".join(filter(None, (state.reason, state.message)))


def _first_failure(job: batch.Job, pods: Sequence[core.Pod]) -> str:
    """The first failed pod by name, with its reason and exit code."""
    for pod in pods:
        if pod.status.phase == "Failed" and not tasks.is_of_earlier_try(job, pod):
            code = termination_causes.exit_code(pod)
            ended = "" if code is None else f"exit code {code}"
            why = termination_causes.history_reason(pod)
            return ", ".join(filter(None, (f"{pod.metadata.name} failed", why, ended)))
    return ""
