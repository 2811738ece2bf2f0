"""``strom usage``: CPU, memory and GPU time by queue, user and other groups."""

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.commands.accounting.history import Format, csv_line
from stromboli.cli.parameters import time_options
from stromboli.cli.render import output
from stromboli.shared.api.views import accounting, efficiency

HOUR_S = 3600.0
SUMS = (
    "attempts",
    "cpu_seconds",
    "memory_gib_seconds",
    "gpu_seconds",
    "evicted_cpu_seconds",
    "evicted_gpu_seconds",
    "idle_cpu_seconds",
    "idle_gpu_seconds",
)
MEASURED = (
    "used_cpu_seconds",
    "used_memory_gib_seconds",
    "used_gpu_seconds",
    "measured_cpu_seconds",
    "measured_memory_gib_seconds",
    "measured_gpu_seconds",
)
"""The measured columns of JSON and CSV; the table shows shares instead."""
HEADERS = (
    "ATTEMPTS",
    "CPU HOURS",
    "GIB HOURS",
    "GPU HOURS",
    "EVICTED CPU",
    "EVICTED GPU",
    "IDLE CPU",
    "IDLE GPU",
    "USED CPU",
    "USED MEM",
    "USED GPU",
)
USUAL_DAYS = 30


def usage(
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    all_namespaces: options.AllNamespaces = False,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="GROUPS",
            help="Groups, separated by commas: "
            f"{', '.join(accounting.GROUPS)}, {accounting.LABEL}KEY.",
        ),
    ] = "queue",
    user: Annotated[
        str, typer.Option("--user", "-u", metavar="USER", help="Only jobs of this user.")
    ] = "",
    me: Annotated[bool, typer.Option("--me", help="Only jobs that you have submitted.")] = False,
    queue: options.QueueFilter = None,
    since: time_options.Since = "",
    until: time_options.Until = "",
    selector: time_options.Labels = "",
    shares: Annotated[
        bool,
        typer.Option(
            "--shares",
            help="Compare the usage of each queue with what it deserved at that time; requires -A.",
        ),
    ] = False,
    output_format: Annotated[
        Format, typer.Option("--output", "-o", help="Output format.", case_sensitive=False)
    ] = Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show CPU, memory and GPU hours by queue, user or day.

    The usage of a pod is its requests times the time from its binding to its end. EVICTED is the
    part of preempted attempts, IDLE the part before the containers started. USED is the share of
    the requests that processes used; only measured attempts count. The default interval is today
    and the 30 days before (UTC). Intervals of whole days are answered fastest. --shares compares
    the usage of each queue and the queues below it with what it deserved.
    """
    now = datetime.now(UTC)
    end = time_options.time(until, now, "--until") or now
    begin = time_options.time(since, now, "--since") or _midnight(end - timedelta(days=USUAL_DAYS))
    if shares and (not all_namespaces or by != "queue" or user or me or queue or selector):
        why = "it shows the usage of all jobs: use it with -A, without --by and other filters"
        raise typer.BadParameter(why, param_hint="--shares")
    if begin >= end:
        raise typer.BadParameter("it is not before --until", param_hint="--since")
    query = accounting.UsageQuery(
        since=begin,
        until=end,
        by=_groups(by),
        namespace="" if all_namespaces else namespace,
        user=user,
        queue=queue or "",
        labels=time_options.labels(selector),
    )
    from stromboli.client.operations import accounting_calls

    with options.client(server) as client:
        submitter = options.submitter(client, is_me=me, user=user or None)
        query = msgspec.structs.replace(query, user=submitter or "")
        report = client.send(accounting_calls.usage(query))
    if not report.complete:
        output.show_note("The history is still loading: the latest attempts may be missing.")
    if shares:
        _show_shares(report.shares, output_format)
    elif output_format is Format.JSON:
        document = [
            {**each.group, **{name: getattr(each, name) for name in (*SUMS, *MEASURED)}}
            for each in report.usage
        ]
        raw = msgspec.json.format(msgspec.json.encode(document), indent=2)
        output.show_lines([raw.decode()])
    elif output_format is Format.CSV:
        output.show_lines(_csv(report.usage, query.by))
    elif not report.usage:
        output.show_empty_list("usage", None if all_namespaces else namespace)
    else:
        keys = [key.removeprefix(accounting.LABEL).upper() for key in query.by]
        output.show_table(*table(keys, report.usage))


def _show_shares(queue_shares: Sequence[accounting.QueueShare], output_format: Format) -> None:
    """Print the shares of queues; a table indents a queue below its parent."""
    names = accounting.QueueShare.__struct_fields__
    if output_format is Format.JSON:
        document = [{name: getattr(each, name) for name in names} for each in queue_shares]
        output.show_lines([msgspec.json.format(msgspec.json.encode(document), indent=2).decode()])
    elif output_format is Format.CSV:
        rows = ([str(getattr(each, name)) for name in names] for each in queue_shares)
        output.show_lines([csv_line(row) for row in (names, *rows)])
    elif not queue_shares:
        output.show_note("No queue deserved CPU or GPUs at that time: none has spec.deserved.")
    else:
        headers = ("CPU HOURS", "DESERVED", "CPU", "GPU HOURS", "DESERVED", "GPU")
        output.show_table(["QUEUE", *headers], [_share_row(each) for each in queue_shares])


def _share_row(share: accounting.QueueShare) -> tuple[str, ...]:
    cells = [f"{'  ' * share.depth}{share.queue}"]
    for used, deserved in (
        (share.cpu_seconds, share.deserved_cpu_seconds),
        (share.gpu_seconds, share.deserved_gpu_seconds),
    ):
        part = f"{used / deserved:.0%}" if deserved else "-"
        cells += [f"{used / HOUR_S:.2f}", f"{deserved / HOUR_S:.2f}", part]
    return tuple(cells)


def _midnight(at: datetime) -> datetime:
    """The beginning of a day (UTC)."""
    at = at.astimezone(UTC)
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def table(
    keys: Sequence[str], usage_: Sequence[accounting.Usage]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Headers and rows, without columns that have no value in any row, such as those of GPUs in a
    cluster without GPUs, so that the table usually fits a terminal. JSON and CSV have all columns.
    """
    headers, rows = [*keys, *HEADERS], [row(each) for each in usage_]
    always = len(keys) + HEADERS.index("GPU HOURS")
    kept = [
        at
        for at in range(len(headers))
        if at < always or any(cells[at] not in ("", "0.00") for cells in rows)
    ]
    return [headers[at] for at in kept], [[cells[at] for at in kept] for cells in rows]


def row(used: accounting.Usage) -> tuple[str, ...]:
    """A group as a row of the table: its keys, hours, and used shares."""
    hours = (getattr(used, name) / HOUR_S for name in SUMS[1:])
    keys = (value or "-" for value in used.group.values())
    summary = efficiency.of_usage(used)
    parts = (summary.cpu, summary.memory, summary.gpu)
    shares = ("" if it is None or it.share is None else f"{it.share:.0%}" for it in parts)
    return (*keys, str(used.attempts), *(f"{each:.2f}" for each in hours), *shares)


def _csv(usage_: Sequence[accounting.Usage], by: Sequence[str]) -> list[str]:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([*by, *SUMS, *MEASURED])
    for each in usage_:
        sums: list[Any] = [getattr(each, name) for name in (*SUMS, *MEASURED)]
        writer.writerow([*each.group.values(), sums[0], *(f"{value:.3f}" for value in sums[1:])])
    return written.getvalue().splitlines()


def _groups(text: str) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for word in wanted:
        label = word.removeprefix(accounting.LABEL)
        if word not in accounting.GROUPS and (label == word or not label):
            known = ", ".join((*accounting.GROUPS, f"{accounting.LABEL}KEY"))
            raise typer.BadParameter(
                f"{word!r} is not a group; use one of {known}", param_hint="--by"
            )
    return wanted
