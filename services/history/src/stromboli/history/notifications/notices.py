"""Which notices an event of a job causes. Pure.

Rules:

1. The id of a notice derives from its content (job, attempt, event, target), so an event that is
   read or published again makes no second notice, and a job of many preempted pods makes one.
2. An event older than ``MAX_AGE_S`` makes no notice: a history that reads two weeks of events after
   the loss of its database must not send two weeks of mails.
3. A job chooses among the targets that its namespace may use; others are ignored. Admission cannot
   know the targets, so a typo in a name shows in the metrics of this service.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from stromboli.history.core.rows import micros, text
from stromboli.history.notifications.targets import Configuration
from stromboli.shared.jobspec import notifications as requests
from stromboli.shared.messages import batch

MAX_AGE_S = 3600.0
LONGEST_DETAIL = 500
"""Characters of a job's message in a notice."""
_PHASES = {
    "Running": requests.STARTED,
    "Completed": requests.COMPLETED,
    "Failed": requests.FAILED,
    "Terminated": requests.STOPPED,
    "Aborted": requests.STOPPED,
    "Pending": requests.LONG_WAIT,
}
"""The phase that a job enters -> the event; LongWait is due later, if the job is still pending."""


class Notice(msgspec.Struct, gc=False):
    """One notification to one target. Times are microseconds since 1970. ``sent_at`` or ``failure``
    is set once the notice was sent or has failed."""

    id: str
    target: str
    event: str
    job: str
    job_uid: str
    retry_count: int
    queue: str
    detail: str
    at: int
    due_at: int
    tries: int = 0
    sent_at: int | None = None
    failure: str = ""


def notices(
    message: msgspec.Struct, configuration: Configuration, now: datetime
) -> Iterator[Notice]:
    """The notices that an event of a job causes, one for each target."""
    match message:
        case batch.JobPhaseChanged():
            event = _PHASES.get(message.after, "")
            detail = ": ".join(filter(None, (message.reason, message.message)))
            yield from _of(message, event, message.queue, detail, configuration, now)
        case batch.TaskChanged(after="Terminating", reason="Preempted"):
            detail = f"{message.pod}: {message.detail}" if message.detail else message.pod
            yield from _of(message, requests.PREEMPTED, "", detail, configuration, now)
        case _:
            pass


def _of(
    message: batch.JobPhaseChanged | batch.TaskChanged,
    event: str,
    queue: str,
    detail: str,
    configuration: Configuration,
    now: datetime,
) -> Iterator[Notice]:
    if not event or now - message.at > timedelta(seconds=MAX_AGE_S):
        return
    at = micros(message.at)
    wait_us = round(configuration.long_wait_s * 1_000_000) if event == requests.LONG_WAIT else 0
    namespace = message.job.partition("/")[0]
    for target in _targets(message.notify, event, namespace, queue, configuration):
        yield Notice(
            id=f"{message.uid}/{message.retry_count}/{event}/{target}",
            target=target,
            event=event,
            job=text(message.job),
            job_uid=text(message.uid),
            retry_count=message.retry_count,
            queue=text(queue),
            detail=text(detail)[:LONGEST_DETAIL],
            at=at,
            due_at=at + wait_us,
        )


def _targets(
    requested: str, event: str, namespace: str, queue: str, configuration: Configuration
) -> set[str]:
    """The targets of an event: those of the installation, and those that the job requests."""
    target_names = {it.name for it in configuration.targets if it.receives(event, queue)}
    try:
        subscriptions = requests.parse(requested)
    except ValueError:  # a job that was admitted without its webhook
        return target_names
    return target_names | {
        each.target
        for each in subscriptions
        if event in each.events and configuration.may_request(each.target, namespace)
    }
