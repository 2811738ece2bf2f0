"""``strom timeline`` and ``strom lineage``: a job's phases and attempts, and its evictions."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.commands.accounting import explanation_records
from stromboli.cli.errors import CommandError
from stromboli.cli.parameters import time_options
from stromboli.cli.render import gantt, output
from stromboli.client import phases
from stromboli.shared.api.views import accounting
from stromboli.shared.formats import counts

if TYPE_CHECKING:
    from stromboli.cli.client import Client

BAR_WIDTH = 40
MOST_ATTEMPTS = 1000
LOADING = "The history is still loading: the latest events may be missing."
Uid = Annotated[
    str, typer.Option("--uid", metavar="UID", help="UID of an earlier job with this name.")
]
Document = Annotated[
    output.DocumentFormat | None,
    typer.Option("--output", "-o", help="Output format.", case_sensitive=False),
]


def timeline(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    uid: Uid = "",
    output_format: Document = None,
    server: options.Server = None,
) -> None:
    """Show a job's phases, waits and attempts over time.

    Deleted jobs are included. Without --uid: the last submitted job of this name. While the reason
    for pending stays the same, it is recorded once an hour. Each attempt has a bar from the
    submission of the job to its end.
    """
    from stromboli.client.operations import accounting_calls

    now = datetime.now(UTC)
    with options.client(server) as client:
        record, earlier = _job(client, namespace, name, uid)
        query = accounting.AttemptQuery(namespace=namespace, uid=record.uid, limit=MOST_ATTEMPTS)
        page = client.send(accounting_calls.attempts(query))
        of_job = accounting.ExplanationQuery(namespace=namespace, uid=record.uid)
        explained = client.send(accounting_calls.explanations(of_job))
    if not page.complete:
        output.show_note(LOADING)
    attempts = sorted(page.attempts, key=lambda it: (it.task, it.index, it.attempt))
    if output_format is not None:
        document = msgspec.to_builtins(record) | {
            "attempts": msgspec.to_builtins(attempts),
            "explanations": msgspec.to_builtins(explained.explanations),
            "positions": msgspec.to_builtins(explained.positions),
        }
        output.show_document(output_format, document)
        return
    output.show_lines([*_facts(record), ""])
    output.show_table(["TIME", "AFTER", "PHASE", "REASON"], list(_phases(record)))
    until = record.finished_at or record.deleted_at or now
    waits = list(explanation_records.rows(explained.explanations, explained.positions, until))
    if waits:
        output.show_lines([""])
        output.show_table(explanation_records.HEADERS, waits)
    if attempts:
        output.show_lines([""])
        _show_attempts(record, attempts, now)
    if page.continue_:
        output.show_note(f"Only the newest {MOST_ATTEMPTS} attempts: see strom history {name}.")
    for other in earlier:
        output.show_note(f"Earlier job of this name: strom timeline {name} --uid {other.uid}")


def lineage(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    uid: Uid = "",
    output_format: Document = None,
    server: options.Server = None,
) -> None:
    """Show which jobs a job evicted, and which evicted it.

    Without --uid: the last submitted job of this name. Pairs of jobs that evict each other are
    reported.
    """
    with options.client(server) as client:
        record, _ = _job(client, namespace, name, uid)
        evictions = list(_evictions(client, namespace, record.uid))
    if output_format is not None:
        output.show_document(output_format, msgspec.to_builtins(evictions))
        return
    if not evictions:
        output.show_note(
            f"No evictions of pods of {namespace}/{name}, and none that made room for it."
        )
        return
    rows = [eviction_row(each) for each in evictions]
    output.show_table(["TIME", "POD", "OF JOB", "FOR", "REASON"], rows)
    for line in mutual(record.uid, evictions):
        output.show_note(line)


def eviction_row(eviction: accounting.Eviction) -> tuple[str, ...]:
    """An eviction as a row of the table; pods and jobs of another namespace have no names."""
    reason = eviction.reason if not eviction.refused else f"not carried out: {eviction.refused}"
    return (
        time_options.short(eviction.at) if eviction.at else "",
        eviction.pod,
        f"{eviction.namespace}/{eviction.job or '-'}",
        f"{eviction.by_namespace}/{eviction.by_job or eviction.by_pod_group or '-'}",
        reason,
    )


def mutual(uid: str, evictions: Sequence[accounting.Eviction]) -> Iterator[str]:
    """A line for each job that evicted pods of the job and lost pods to it."""
    carried_out = [each for each in evictions if not each.refused]
    lost = Counter(it.by_uid for it in carried_out if it.uid == uid and it.by_uid != uid)
    won = Counter(it.uid for it in carried_out if it.by_uid == uid and it.uid)
    names = {it.by_uid: f"{it.by_namespace}/{it.by_job}" for it in carried_out}
    for other in sorted(lost.keys() & won.keys(), key=lambda it: names[it]):
        yield (
            f"Warning: {names[other]} and this job evict each other: "
            f"it lost {counts.counted(won[other], 'pod')}, this job lost {lost[other]}"
        )


def _job(
    client: "Client", namespace: str, name: str, uid: str
) -> tuple[accounting.JobRecord, Sequence[accounting.JobRecord]]:
    """The job, and a few earlier ones of the same name. Raises CommandError if there is no such
    job."""
    from stromboli.client.operations import accounting_calls

    query = accounting.JobQuery(namespace=namespace, name=name, uid=uid, limit=4)
    page = client.send(accounting_calls.jobs(query))
    if not page.jobs:
        if not page.complete:
            output.show_note(LOADING)
        what = f"job {namespace}/{name}" + (f" with uid {uid}" if uid else "")
        raise CommandError(
            what, "the history has no such job", f"list what ran: strom history -n {namespace}"
        )
    return page.jobs[0], page.jobs[1:]


def _evictions(client: "Client", namespace: str, uid: str) -> Iterator[accounting.Eviction]:
    from stromboli.client.operations import accounting_calls

    query = accounting.EvictionQuery(namespace=namespace, uid=uid)
    pages = accounting_calls.pages(client.send, accounting_calls.evictions, query)
    for number, page in enumerate(pages):
        if not page.complete and number == 0:
            output.show_note(LOADING)
        yield from page.evictions


def _facts(record: accounting.JobRecord) -> list[str]:
    last = record.phases[-1] if record.phases else None
    message = last.message if last is not None and last.phase == record.phase else ""
    why = phases.in_words(record.reason, message)
    known = [
        ("job", f"{record.namespace}/{record.name}"),
        ("uid", record.uid),
        ("queue", record.queue),
        ("user", record.user or "-"),
        ("phase", record.phase + (f" ({why})" if why else "")),
    ]
    times = (
        ("submitted", record.submitted_at),
        ("ended", record.finished_at),
        ("deleted", record.deleted_at),
    )
    by = {"deleted": f" by {', '.join(record.deleted_by)}" if record.deleted_by else ""}
    known += [
        (label, f"{time_options.short(at)} UTC{by.get(label, '')}") for label, at in times if at
    ]
    if record.retry_count:
        known.append(("restarts", str(record.retry_count)))
    return output.facts(*known)


def _phases(record: accounting.JobRecord) -> Iterator[tuple[str, ...]]:
    """The phases, the requests of users and the deletion, in the order of time."""
    begin = record.submitted_at or (record.phases[0].at if record.phases else None)
    steps = [(it.at, it.phase, phases.in_words(it.reason, it.message)) for it in record.phases]
    steps += [(it.at, "", accounting.request_text(it)) for it in record.requests]
    if record.deleted_at is not None:
        steps.append((record.deleted_at, "Deleted", ""))
    for at, phase, why in sorted(steps, key=lambda step: step[0]):
        yield (time_options.short(at), output.age(begin, at) if begin else "", phase, why)


def _show_attempts(
    record: accounting.JobRecord, attempts: Sequence[accounting.Attempt], now: datetime
) -> None:
    times = [at for it in attempts for at in (it.submitted_at, it.ended_at or now) if at]
    begin = min([*times, *([record.submitted_at] if record.submitted_at else [])])
    until = max(times)
    rows = []
    for each in attempts:
        signs = (gantt.WAITING, gantt.BOUND, gantt.RUNNING)
        reached = (each.submitted_at, each.allocated_at, each.started_at)
        steps = [(sign, at) for sign, at in zip(signs, reached, strict=True) if at]
        end = each.ended_at or now
        bar_text = gantt.bar(steps, end, begin, until, BAR_WIDTH) if steps else ""
        reason = phases.attempt_in_words(each.reason, "")
        state = each.state + (f" ({reason})" if reason else "")
        place = (each.task, str(each.index), str(each.attempt), state, each.node)
        rows.append((*place, output.age(steps[0][1] if steps else end, end), bar_text))
    headers = ["TASK", "INDEX", "ATTEMPT", "STATE", "NODE", "TIME", gantt.LEGEND]
    output.show_table(headers, rows)
    edges = " to ".join(time_options.short(at) for at in (begin, until))
    output.show_note(f"Bars: {edges} UTC")
