"""``strom job wait``: wait for a phase of a job."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from stromboli.cli import options
from stromboli.cli.errors import CommandError
from stromboli.cli.job_specs import job_reference
from stromboli.cli.render import explanation_view, job_view, output
from stromboli.client.phases import ENDS, phase_of, reason_of
from stromboli.shared.api import batch
from stromboli.shared.api.views.task_history import TaskAttempt
from stromboli.shared.formats import indexes

if TYPE_CHECKING:
    from stromboli.cli.client import Client

SHOWN = 3
"""Maximum failed attempts that are listed."""
ONWARD = "the job continues; wait again: strom job wait {name} -n {namespace}"


def wait(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    wanted: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="Phases to wait for, such as Running,Completed. [default: the end of the job]",
            metavar="PHASES",
        ),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="Time limit: 90s, 5m, 1h30m. [default: none]")
    ] = None,
    server: options.Server = None,
) -> None:
    """Wait until a job reaches a phase or ends.

    JOB[3,7-9] waits until these indexes of an array have ended.

    Exit code 0: the job is in a phase of --for, or Completed, or the indexes have succeeded. 1: it
    ended in another phase or was deleted, or an index has not succeeded. 124: timeout.
    For a job that is pending for 5 seconds, the reason is on stderr.
    For a job that failed, the reason, the first failed pods and their exit codes are on stderr.
    """
    phases = None if wanted is None else options.phases(wanted, "--for")
    timeout_s = options.duration_s(timeout, "--timeout")
    name, wanted_indexes = job_reference.split(name)
    if wanted_indexes is not None and phases is not None:
        raise typer.BadParameter("indexes have no phases; wait for their end", param_hint="--for")
    with options.client(server) as client:
        if wanted_indexes is None:
            until(client, namespace, name, phases, timeout_s)
        else:
            _until_indexes(client, namespace, name, wanted_indexes, timeout_s)


def until(
    client: "Client",
    namespace: str,
    name: str,
    phases: frozenset[str] | None,
    timeout_s: float | None,
) -> None:
    """Wait for one of these phases or the end of the job, and print the last state.

    Raises Exit with 1 if the job ended in a phase that is neither one of these nor Completed,
    CommandError if it was deleted, TimedOutError.
    """
    wanted = ENDS if phases is None else phases

    def explain() -> None:
        with contextlib.suppress(CommandError):  # the wait continues without it
            explanation = client.explanation(namespace, name)
            for line in explanation_view.render(explanation, now=datetime.now(UTC)):
                output.show_note(line)

    with _progress(wanted) as report:
        try:
            job = client.wait(namespace, name, wanted, timeout_s, report, explain)
        except KeyboardInterrupt:
            output.show_note(f"next: {ONWARD.format(name=name, namespace=namespace)}")
            raise
    output.show_lines([job_view.progress(job)])
    if phase_of(job) not in {"Completed", *(phases or ())}:
        attempts: tuple[TaskAttempt, ...] = ()
        with contextlib.suppress(CommandError):  # the reason in the job's status remains
            attempts = client.tasks(namespace, name, job.metadata.uid).tasks
        for line in why_it_failed(job, attempts):
            output.show_note(line)
        raise typer.Exit(1)


class _IndexesEnded(Exception):  # noqa: N818 - not an error: it ends the wait
    """All awaited indexes have ended."""


def _until_indexes(
    client: "Client",
    namespace: str,
    name: str,
    wanted: indexes.Indexes,
    timeout_s: float | None,
) -> None:
    """Wait for the end of these indexes of an array, and print how they ended. Raises Exit with 1
    unless all succeeded, CommandError for a job without these indexes, and the errors of
    ``until``."""
    results: dict[str, indexes.Indexes] = {}

    def report(job: batch.Job) -> None:
        nonlocal results
        has = indexes.parse(job.spec.array.indexes) if job.spec.array else indexes.Indexes()
        if unknown := wanted - has:
            why = f"it has no index {unknown}" if has else "it is not an array"
            raise CommandError(f"job {namespace}/{name}", why, f"see: strom job get {name}")
        results = job_view.index_results(job, wanted)
        if sum(map(len, results.values())) == len(wanted):
            raise _IndexesEnded

    with contextlib.suppress(_IndexesEnded):
        client.wait(namespace, name, ENDS, timeout_s, report)
    summary = ", ".join(
        f"{len(index_set)} {word}: {index_set}" for word, index_set in results.items()
    )
    output.show_lines([f"{namespace}/{name}[{wanted}]: {summary or 'the job ended before them'}"])
    if len(results.get("succeeded", ())) < len(wanted):
        raise typer.Exit(1)


def why_it_failed(job: batch.Job, attempts: Sequence[TaskAttempt]) -> list[str]:
    """The reason in the job's status, the first failed attempts with node, reason and exit code,
    and the command that shows the log of the first one. Pure."""
    reason = reason_of(job)
    lines = [f"  reason: {reason}"] if reason else []
    failed = [each for each in attempts if each.state == "Failed" or each.exit_code]
    failed.sort(key=lambda each: (each.ended_at is None, each.ended_at))
    for each in failed[:SHOWN]:
        code = "" if each.exit_code is None else f"exit code {each.exit_code}"
        facts = [
            each.detail or each.reason,
            code,
            f"attempt {each.attempt}" if each.attempt else "",
        ]
        where = f" on node {each.node}" if each.node else ""
        lines.append(f"  pod {each.pod}{where}: {', '.join(filter(None, facts))}")
    if len(failed) > SHOWN:
        lines.append(f"  and {len(failed) - SHOWN} more: strom job history {job.metadata.name}")
    if failed:
        first = failed[0]
        attempt = f" --attempt {first.attempt}" if first.attempt else ""
        lines.append(
            f"next: strom job logs {job.metadata.name} --task {first.task} --index {first.index}"
            f"{attempt} -n {job.metadata.namespace}"
        )
    return lines


@contextlib.contextmanager
def _progress(wanted: frozenset[str]) -> Iterator[Callable[[batch.Job], None]]:
    """Report progress on stderr: a bar on a terminal, a line per change elsewhere. The final state
    is not reported."""
    if sys.stderr.isatty():
        from rich import progress
        from rich.console import Console

        columns = (
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
        )
        with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            line = bar.add_task("waiting", total=None)

            def draw(job: batch.Job) -> None:
                through, total = job_view.finished_count(job)
                text = job_view.progress(job)
                bar.update(line, description=text, completed=through, total=total or None)

            yield draw
        return
    last = ""

    def report(job: batch.Job) -> None:
        nonlocal last
        line = job_view.progress(job)
        if line != last and phase_of(job) not in wanted | ENDS:
            output.show_note(line)
        last = line

    yield report
