"""``strom history``: everything that ran, also jobs that were deleted long ago."""

import csv
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from stromboli.cli import options, usage_errors
from stromboli.cli.errors import CommandError
from stromboli.cli.parameters import parsing, time_options
from stromboli.cli.render import explanation_view, output
from stromboli.client import phases
from stromboli.shared import device_annotations
from stromboli.shared.api.views import accounting, efficiency
from stromboli.shared.formats import counts

if TYPE_CHECKING:
    from stromboli.cli.client import Client


class Format(StrEnum):
    """Values of ``--output``."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


DEFAULT = (
    "job",
    "user",
    "queue",
    "task",
    "index",
    "attempt",
    "state",
    "reason",
    "exit_code",
    "node",
    "submitted_at",
    "elapsed",
)
"""Default columns of the table."""
COMPUTED: dict[str, Callable[[accounting.Attempt, datetime], str]] = {
    "elapsed": lambda it, now: output.age(it.started_at or it.allocated_at, it.ended_at or now),
    "waited": lambda it, now: output.age(it.submitted_at, it.allocated_at or it.ended_at or now),
    "devices": lambda it, _: device_annotations.format_assignments(it.devices),
    "confirmed_devices": lambda it, _: device_annotations.format_assignments(it.confirmed_devices),
    "numa_nodes": lambda it, _: ",".join(map(str, it.numa_nodes)),
    "cpu_efficiency": lambda it, _: _percent(efficiency.of_attempts((it,)).cpu),
    "memory_efficiency": lambda it, _: _percent(efficiency.of_attempts((it,)).memory),
    "gpu_efficiency": lambda it, _: _percent(efficiency.of_attempts((it,)).gpu),
    "labels": lambda it, _: ",".join(f"{key}={value}" for key, value in sorted(it.labels.items())),
    "requests": lambda it, _: ",".join(
        f"{key}={value}" for key, value in sorted(it.requests.items())
    ),
}
"""Column -> its text, for columns that are not a plain field of an attempt."""
FIELDS = tuple(field.name for field in msgspec.structs.fields(accounting.Attempt))
COLUMNS = tuple(dict.fromkeys((*FIELDS, *COMPUTED)))
USUAL_LIMIT = 1000
SHORT_STATES = {
    "pd": ("Pending", "Bound"),
    "r": ("Running",),
    "cg": ("Terminating",),
    "cd": ("Succeeded",),
    "completed": ("Succeeded",),
    "f": ("Failed",),
    "to": ("Timeout",),
    "ca": ("Gone",),
}
"""Slurm's codes of job states, and the phase of jobs -> states of attempts."""


def history(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="Only jobs with this name, deleted ones included.",
            autocompletion=options.job_names,
        ),
    ] = None,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    all_namespaces: options.AllNamespaces = False,
    user: Annotated[
        str, typer.Option("--user", "-u", metavar="USER", help="Only jobs of this user.")
    ] = "",
    me: Annotated[bool, typer.Option("--me", help="Only jobs that you have submitted.")] = False,
    queue: options.QueueFilter = None,
    state: Annotated[
        str,
        typer.Option(
            "--state",
            "-s",
            metavar="STATES",
            help="Only attempts in these states: Failed,Gone, or short: PD,R,CG,CD,F,TO,CA.",
        ),
    ] = "",
    since: time_options.Since = "",
    until: time_options.Until = "",
    at: Annotated[
        str,
        typer.Option(
            "--at", metavar="TIME", help="Only attempts that held a node and devices at this time."
        ),
    ] = "",
    selector: time_options.Labels = "",
    node: Annotated[
        str, typer.Option("--node", metavar="NODE", help="Only attempts on this node.")
    ] = "",
    device: Annotated[
        str,
        typer.Option("--device", metavar="ID", help="Only attempts with this device: GPU-4f0c..."),
    ] = "",
    uid: Annotated[
        str, typer.Option("--uid", metavar="UID", help="Only the job with this uid.")
    ] = "",
    limit: Annotated[
        int,
        typer.Option(
            "--limit", min=0, help="Maximum number of attempts, the newest first; 0: all."
        ),
    ] = USUAL_LIMIT,
    columns: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="COLUMNS",
            help=f"Columns of table and csv: {', '.join(COLUMNS)}. Requests in csv and json are "
            "whole numbers: memory in bytes, cpu and GPUs in thousandths.",
        ),
    ] = "",
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write to a file: .json, else csv."),
    ] = None,
    output_format: Annotated[
        Format, typer.Option("--output", "-o", help="Output format.", case_sensitive=False)
    ] = Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show every attempt of all jobs, also of deleted ones.

    An attempt is one run of a task index: its state, reason, exit code, node, times and resource
    usage. Attempts are kept in the history's database, far longer than the event log.
    """
    selected_columns = _columns(columns) or (DEFAULT if output_format is Format.TABLE else COLUMNS)
    now = datetime.now(UTC)
    query = accounting.AttemptQuery(
        namespace="" if all_namespaces else namespace,
        job=name or "",
        uid=uid,
        user=user,
        queue=queue or "",
        states=_states(state),
        since=time_options.time(since, now, "--since"),
        until=time_options.time(until, now, "--until"),
        at=time_options.time(at, now, "--at"),
        node=node,
        device=device,
        labels=time_options.labels(selector),
        limit=min(limit or accounting.ATTEMPTS_PER_PAGE, accounting.ATTEMPTS_PER_PAGE),
    )
    with options.client(server) as client:
        submitter = options.submitter(client, is_me=me, user=user or None)
        query = msgspec.structs.replace(query, user=submitter or "")
        attempts = list(
            itertools.islice(read_attempts(client, query), limit + 1 if limit else None)
        )
    if limit and len(attempts) > limit:
        attempts.pop()
        output.show_note(
            f"Only the newest {counts.counted(limit, 'attempt')}; use --limit 0 for all."
        )
    if export is not None:
        _export(export, attempts, selected_columns if columns else COLUMNS, now)
    elif not attempts and output_format is Format.TABLE:
        unfiltered = accounting.AttemptQuery(namespace=query.namespace, limit=query.limit)
        output.show_empty_list(
            "attempts",
            None if all_namespaces else namespace,
            is_filtered=query != unfiltered,
        )
    else:
        if all_namespaces and not columns and output_format is Format.TABLE:
            selected_columns = ("namespace", *selected_columns)
        show(attempts, selected_columns, output_format, now)


def show(
    attempts: Sequence[accounting.Attempt],
    columns: Sequence[str],
    output_format: Format,
    now: datetime,
    empty: str = "",
) -> None:
    """Print attempts; JSON has all fields. ``empty``: the note that replaces a table without
    rows."""
    if output_format is Format.JSON:
        output.show_lines([_json(attempts)])
    elif output_format is Format.CSV:
        output.show_lines(_csv(attempts, columns, now).splitlines())
    elif not attempts:
        output.show_note(empty)
    else:
        headers = [column.upper().replace("_", " ") for column in columns]
        output.show_table(headers, [row(each, columns, now) for each in attempts])


def row(
    attempt: accounting.Attempt, columns: Sequence[str], now: datetime, *, is_table: bool = True
) -> tuple[str, ...]:
    """An attempt as text, a cell per column."""
    return tuple(_cell(attempt, column, now, is_table=is_table) for column in columns)


def _cell(attempt: accounting.Attempt, column: str, now: datetime, *, is_table: bool) -> str:
    if is_table and column == "requests":
        return explanation_view.format_amounts(dict(sorted(attempt.requests.items())))
    if column in COMPUTED:
        return COMPUTED[column](attempt, now)
    value = getattr(attempt, column)
    if is_table and column == "reason":
        return phases.attempt_in_words(attempt.reason, attempt.detail)
    if value is None:
        return ""
    if isinstance(value, datetime):
        return time_options.short(value) if is_table else time_options.exact(value)
    if is_table and column.endswith("_bytes"):
        return efficiency.format_bytes(value)
    if isinstance(value, float):
        return f"{value:.0f}" if is_table else f"{value:.3f}"
    return str(value)


def _percent(part: efficiency.Part | None) -> str:
    """A share in percent; empty if it is not known."""
    return "" if part is None or part.share is None else f"{part.share:.1%}"


def read_attempts(client: "Client", query: accounting.AttemptQuery) -> Iterator[accounting.Attempt]:
    """The attempts of a query, page by page, with a note if the newest may be missing."""
    from stromboli.client.operations import accounting_calls

    pages = accounting_calls.pages(client.send, accounting_calls.attempts, query)
    for number, page in enumerate(pages):
        if not page.complete and number == 0:
            output.show_note("The history is still loading: the latest attempts may be missing.")
        yield from page.attempts


def documents(attempts: Sequence[accounting.Attempt]) -> list[dict[str, Any]]:
    """Attempts as JSON documents, with the names of their fields as keys."""
    return [
        {name: msgspec.to_builtins(getattr(each, name)) for name in FIELDS} for each in attempts
    ]


def _json(attempts: Sequence[accounting.Attempt]) -> str:
    return msgspec.json.format(msgspec.json.encode(documents(attempts)), indent=2).decode()


def csv_line(cells: Sequence[str]) -> str:
    """Cells as a line of CSV."""
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(cells)
    return written.getvalue()


def _csv(attempts: Sequence[accounting.Attempt], columns: Sequence[str], now: datetime) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(row(each, columns, now, is_table=False) for each in attempts)
    return written.getvalue()


def _export(
    file: Path, attempts: Sequence[accounting.Attempt], columns: Sequence[str], now: datetime
) -> None:
    is_json = file.suffix == ".json"
    text = f"{_json(attempts)}\n" if is_json else _csv(attempts, columns, now)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"history: {file}", reason, "name another file") from None
    output.show_note(f"{counts.counted(len(attempts), 'attempt')} written to {file}")


def _columns(text: str) -> tuple[str, ...]:
    wanted = tuple(word.strip().lower() for word in text.split(",") if word.strip())
    unknown = next((word for word in wanted if word not in COLUMNS), None)
    if unknown is not None:
        known = ", ".join(COLUMNS)
        raise typer.BadParameter(
            f"{unknown!r} is not a column; use one of {known}"
            f"{usage_errors.did_you_mean(unknown, COLUMNS)}",
            param_hint="--format",
        )
    return wanted


def _states(text: str) -> tuple[str, ...]:
    try:
        return parsing.split_names(text, accounting.STATES, SHORT_STATES, "state")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--state") from None
