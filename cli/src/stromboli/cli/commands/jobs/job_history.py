"""``strom job history``: every attempt of a job's tasks, also of a deleted job."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.job_specs import job_reference
from stromboli.cli.parameters import time_options
from stromboli.cli.render import output
from stromboli.client import phases
from stromboli.shared import device_annotations
from stromboli.shared.api.views.task_history import TaskAttempt, TaskHistory

HEADERS = (
    "TASK",
    "INDEX",
    "ATTEMPT",
    "STATE",
    "REASON",
    "EXIT",
    "NODE",
    "PENDING",
    "RAN",
    "AGE",
    "DEVICES",
)


def history(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    task: Annotated[
        str | None, typer.Option("--task", "-t", metavar="NAME", help="Only attempts of this task.")
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Only the last attempt of every index.")
    ] = False,
    uid: Annotated[
        str, typer.Option("--uid", metavar="UID", help="UID of an earlier job with this name.")
    ] = "",
    output_format: Annotated[
        output.DocumentFormat, typer.Option("--output", "-o", help="Output format.")
    ] = output.DocumentFormat.TABLE,
    server: options.Server = None,
) -> None:
    """Show all attempts of a job, also of a deleted one.

    An attempt is one run of a task: its node, result and times. Attempts are kept as long as the
    event log, two weeks by default. JOB[3,7-9] shows these indexes only.
    """
    name, indexes = job_reference.split(name)
    with options.client(server) as client:
        job_history = client.tasks(namespace, name, uid)
    attempts = job_history.latest if last else job_history.tasks
    attempts = tuple(
        it
        for it in attempts
        if task in (None, it.task) and (indexes is None or it.index in indexes)
    )
    if not job_history.complete:
        output.show_note("The history is still loading: earlier attempts may be missing.")
    if job_history.earlier and not uid:
        output.show_note(f"Earlier jobs with this name (--uid): {', '.join(job_history.earlier)}")
    if output_format is not output.DocumentFormat.TABLE:
        output.show_document(output_format, _document(job_history, attempts))
        return
    if not attempts:
        output.show_empty_list(f"attempts of job {name}", namespace)
        if job_history.deleted_at is not None and not job_history.tasks:
            at = time_options.short(job_history.deleted_at)
            output.show_note(f"The job was deleted at {at} UTC, before it had a pod.")
        return
    now = datetime.now(UTC)
    output.show_table(
        *output.without_empty_last_column(HEADERS, [row(attempt, now) for attempt in attempts])
    )


def row(attempt: TaskAttempt, now: datetime) -> tuple[str, ...]:
    """An attempt as a row under ``HEADERS``. PENDING ends when the pod runs, or when it ends
    without having run; for a first attempt it begins with the submission of the job."""
    # A run may end before the controller observes it as Running: such a run has an exit code but no
    # start, and counts from its binding.
    ran_from = attempt.running_at or (attempt.bound_at if attempt.exit_code is not None else None)
    began = ran_from or attempt.ended_at or now
    return (
        attempt.task,
        str(attempt.index),
        str(attempt.attempt or ""),
        attempt.state,
        phases.attempt_in_words(attempt.reason, attempt.detail),
        "" if attempt.exit_code is None else str(attempt.exit_code),
        attempt.node,
        output.age(attempt.submitted_at or attempt.created_at, began),
        output.duration(ran_from, attempt.ended_at or now),
        output.age(attempt.created_at or attempt.bound_at, now),
        device_annotations.format_assignments(attempt.devices),
    )


def _document(job_history: TaskHistory, attempts: tuple[TaskAttempt, ...]) -> dict[str, object]:
    built: dict[str, object] = msgspec.to_builtins(job_history)
    return {**built, "tasks": msgspec.to_builtins(attempts)}
