"""``strom job logs``: the logs of a job's pods, each line with the name of its pod."""

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.commands import explain
from stromboli.cli.errors import CommandError, NotFoundError
from stromboli.cli.job_specs import job_reference
from stromboli.cli.parameters import time_options
from stromboli.cli.render import explanation_view, log_lines, merged_logs, output, pod_status
from stromboli.client import job_logs, phases
from stromboli.client.operations import log_calls
from stromboli.shared.api import batch, kinds
from stromboli.shared.api.views.task_history import TaskAttempt
from stromboli.shared.formats import counts
from stromboli.shared.formats.indexes import Indexes

if TYPE_CHECKING:
    from stromboli.cli.client import Client

MOST_STREAMS = 64
"""Maximum streams followed concurrently; each costs a connection to the server and one to a
node."""
READING = "read the log of "
"""Prefix of the server's error about a log; it is dropped, because the error names the pod
anyway."""
POLL_EVERY_S = 1.0
"""Interval in seconds at which the pods are listed again."""


def logs(
    name: options.JobName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until the job ends.")
    ] = False,
    task: options.Task = None,
    index: options.Index = None,
    container: options.Container = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, help="Only the last lines of each container.")
    ] = None,
    previous: Annotated[
        bool,
        typer.Option("--previous", "-p", help="The log of the previous run of each container."),
    ] = False,
    attempt: Annotated[
        int | None,
        typer.Option(
            "--attempt",
            min=1,
            help="The log of the attempt with this number in job history. A kubelet drops the logs "
            "of deleted pods; process nodes keep them.",
        ),
    ] = None,
    prefix: Annotated[
        bool, typer.Option("--prefix/--no-prefix", help="Print the pod's name before each line.")
    ] = True,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only lines of the last 10m, or since 2026-01-31 or 2026-01-31T12:00:00Z.",
        ),
    ] = "",
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Print the time before each line.")
    ] = False,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Print the logs of a job's pods.

    All pods, or those of --task and --index; JOB[3,7-9] selects indexes, too. Lines of several pods
    are sorted by time, with --follow in the order in which they arrive. If the pods of an ended job
    are deleted, or the job itself, the logs of their last attempts are printed where nodes keep
    them.
    """
    name, indexes = job_reference.split(name, index)
    if follow and attempt is not None:
        raise typer.BadParameter("set either --attempt or --follow", param_hint="--attempt")
    part = _Part(
        tail=tail,
        previous=previous,
        follow=follow,
        since=time_options.time(since, datetime.now(UTC), "--since"),
    )
    with options.client(server) as client:
        reader = _LogReader(client, namespace, name, part, prefix=prefix, timestamps=timestamps)
        try:
            job = client.decode(kinds.JOBS, client.job(namespace, name))
        except NotFoundError as error:
            attempts = _attempts_of_deleted_job(client, namespace, name, error)
            sources = log_lines.deleted_job_sources(
                name, attempts, attempt, task, indexes, container
            )
            if not sources:
                raise
            output.show_note("The job is deleted: these are the logs that its nodes keep.")
            reader.read(sources, of_attempts=True)
            return
        if problem := log_lines.unknown_task(job, task):
            raise CommandError(
                f"job {namespace}/{name}",
                problem,
                f"show its tasks: strom job get {name} -n {namespace}",
            )

        def find_sources() -> list[log_lines.Source]:
            try:
                pods = [pod_status.decode(raw) for raw in client.pods(namespace, name)]
            except NotFoundError:
                return []  # deleted since
            wanted = log_lines.select_pods(pods, task, indexes)
            return log_lines.log_sources(wanted, name, container)

        why = f"see why: strom explain {name} -n {namespace}"

        if attempt is not None:
            sources = _sources_of_attempt(client, job, attempt, task, indexes, container)
            reader.read(sources, of_attempts=True)
            return
        if follow:
            if not find_sources():
                output.show_note(f"No pod has started yet; waiting. To {why}.")
            reader.follow(find_sources, lambda: _has_ended(client, namespace, name))
            return
        if sources := find_sources():
            reader.read(sources)
            _report_not_started(client, namespace, name, task, indexes, container)
        elif sources := _sources_of_deleted_pods(client, job, task, indexes, container):
            output.show_note("The pods are deleted: these are the logs that their nodes keep.")
            reader.read(sources, of_attempts=True)
        else:
            raise _never_started(client, job, task, indexes)


def _attempts_of_deleted_job(
    client: "Client", namespace: str, name: str, error: NotFoundError
) -> tuple[TaskAttempt, ...]:
    """The attempts of the last job of this name. Raises ``error`` if there has been none."""
    try:
        return client.tasks(namespace, name).tasks
    except CommandError:
        raise error from None


def _sources_of_deleted_pods(
    client: "Client",
    job: batch.Job,
    task: str | None,
    indexes: Indexes | None,
    container: str | None,
) -> list[log_lines.Source]:
    """The containers of the last attempt of each task and index of an ended job without pods."""
    namespace, name = job.metadata.namespace, job.metadata.name
    if phases.phase_of(job) not in phases.ENDS or client.pods(namespace, name):
        return []
    try:
        tasks = client.tasks(namespace, name, job.metadata.uid).tasks
    except NotFoundError:
        return []  # no pod of it has ever been created
    return log_lines.last_attempt_sources(job, tasks, task, indexes, container)


def _sources_of_attempt(
    client: "Client",
    job: batch.Job,
    attempt: int,
    task: str | None,
    indexes: Indexes | None,
    container: str | None,
) -> list[log_lines.Source]:
    """The containers of an attempt. Raises CommandError if no pod has made this attempt."""
    namespace, name = job.metadata.namespace, job.metadata.name
    tasks = client.tasks(namespace, name, job.metadata.uid).tasks
    sources = log_lines.attempt_sources(job, tasks, attempt, task, indexes, container)
    if not sources:
        last = max((each.attempt for each in tasks), default=0)
        raise CommandError(
            f"job {namespace}/{name}",
            f"attempt {attempt} not found; {f'the last one is {last}' if last else 'it has none'}",
            f"list its attempts: strom job history {name} -n {namespace}",
        )
    return sources


def _never_started(
    client: "Client", job: batch.Job, task: str | None, indexes: Indexes | None
) -> CommandError:
    """The error for a job without any log, with the reason."""
    namespace, name = job.metadata.namespace, job.metadata.name
    pods = [pod_status.decode(raw) for raw in client.pods(namespace, name)]
    wanted = log_lines.select_pods(pods, task, indexes)
    details: list[str] = []
    is_over = phases.phase_of(job) in phases.ENDS
    if not wanted and pods:
        of = f"of task {task}" if indexes is None else f"with index {indexes}"
        why = f"it has no pod {of}"
    elif is_over:
        why = f"it is {phases.phase_of(job)}, and its pods are deleted or have never started"
    else:
        why = "no pod has started yet"
        explanation = client.explanation(namespace, name)
        waiting = explain.waiting_pods(client, wanted, datetime.now(UTC))
        details = [line.strip() for line in explanation_view.render(explanation, waiting)]
    next_step = f"see: strom job describe {name} -n {namespace}"
    if not is_over:
        next_step = f"wait with --follow, or {next_step}"
    return CommandError(f"job {namespace}/{name}", why, next_step, tuple(details))


def _report_not_started(
    client: "Client",
    namespace: str,
    name: str,
    task: str | None,
    indexes: Indexes | None,
    container: str | None,
) -> None:
    """Raises CommandError that names the containers which have never started, if there are any."""
    pods = [pod_status.decode(raw) for raw in client.pods(namespace, name)]
    wanted = log_lines.select_pods(pods, task, indexes)
    reasons = log_lines.not_started(wanted, name, container)
    if reasons:
        raise CommandError(
            f"job {namespace}/{name}",
            f"{counts.counted(len(reasons), 'container')} never started",
            f"see: strom job describe {name} -n {namespace}",
            tuple(f"{label}: {why}" for label, why in reasons.items()),
        )


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the part of each log that is read."""

    tail: int | None
    previous: bool
    follow: bool
    since: datetime | None


class _LogReader:
    """Reads sources, by time or concurrently, and prints their lines."""

    def __init__(
        self,
        client: "Client",
        namespace: str,
        job: str,
        part: _Part,
        *,
        prefix: bool,
        timestamps: bool,
    ) -> None:
        self._of_attempts = False
        self._client = client
        self._namespace = namespace
        self._job = job
        self._part = part
        self._prefix = prefix
        self._timestamps = timestamps
        self._lines: queue.Queue[tuple[log_lines.Source, str | None]] = queue.Queue(10_000)
        self._seen_bytes: dict[tuple[str, str, int], int] = {}
        self._troubles: dict[str, CommandError] = {}

    def read(self, sources: list[log_lines.Source], *, of_attempts: bool = False) -> None:
        """Print the lines of all sources by time; then raise the first error of a source.
        ``of_attempts``: the pods of the sources may be deleted."""
        self._of_attempts = of_attempts
        prefixes = log_lines.line_prefixes(sources)
        if len(sources) > MOST_STREAMS:
            output.show_note(
                f"strom: printing {len(sources)} logs one after the other, because only up to "
                f"{MOST_STREAMS} can be sorted by time; select fewer with --task and --index"
            )
        if 1 < len(sources) <= MOST_STREAMS:
            logs = {source: self._stream(source, with_time=True) for source in sources}
            for source, line in merged_logs.merge(logs):
                self._show(source, line.raw if self._timestamps else line.text, prefixes)
        else:
            for source in sources:
                for text in self._stream(source, with_time=self._timestamps):
                    self._show(source, text, prefixes)
        for trouble in self._troubles.values():
            raise trouble

    def follow(
        self, find_sources: Callable[[], list[log_lines.Source]], has_ended: Callable[[], bool]
    ) -> None:
        """Print lines until the job and all streams have ended."""
        reading: set[tuple[str, str, int]] = set()
        done: set[tuple[str, str, int]] = set()
        sources: list[log_lines.Source] = []
        is_reported = False
        polled_at = -POLL_EVERY_S
        is_over = False
        while True:
            if time.monotonic() - polled_at >= POLL_EVERY_S:
                was_over, is_over = is_over, has_ended()
                sources = sources if was_over else find_sources()
                polled_at = time.monotonic()
                for source in sources:
                    key = (source.uid, source.container, source.restarts)
                    if key in reading or (key in done and (source.is_over or is_over)):
                        continue
                    if len(reading) >= MOST_STREAMS:
                        if not is_reported:
                            output.show_note(
                                f"strom: following {MOST_STREAMS} of {len(sources)} containers; "
                                "select others with --task and --index"
                            )
                        is_reported = True
                        break
                    reading.add(key)
                    threading.Thread(target=self._feed, args=(source,), daemon=True).start()
            try:
                source, line = self._lines.get(timeout=POLL_EVERY_S / 4)
            except queue.Empty:
                if is_over and not reading:
                    break
                continue
            if line is None:
                key = (source.uid, source.container, source.restarts)
                reading.discard(key)
                done.add(key)
            else:
                self._show(source, line, log_lines.line_prefixes(sources))
        for trouble in self._troubles.values():
            output.show_note(trouble.lines()[0])

    def _feed(self, source: log_lines.Source) -> None:
        try:
            for line in self._stream(source, with_time=self._timestamps):
                self._lines.put((source, line))
        finally:
            self._lines.put((source, None))

    def _stream(self, source: log_lines.Source, *, with_time: bool) -> Iterator[str]:
        """The source's lines. After a reconnect the bytes that were printed already are skipped."""
        key = (source.uid, source.container, source.restarts)
        is_again = key in self._seen_bytes
        skip = self._seen_bytes.get(key, 0) if self._part.tail is None else 0
        call = log_calls.log(
            self._namespace,
            source.pod,
            source.container,
            follow=self._part.follow,
            previous=self._part.previous,
            tail_lines=0 if is_again and self._part.tail is not None else self._part.tail,
            uid=source.uid if self._of_attempts else "",
            timestamps=with_time,
            since=self._part.since,
        )
        lines = job_logs.LineBuffer()
        try:
            with self._client.stream(call) as chunks:
                for chunk in chunks:
                    passed = min(skip, len(chunk))
                    skip -= passed
                    self._seen_bytes[key] = self._seen_bytes.get(key, 0) + len(chunk) - passed
                    yield from lines.feed(chunk[passed:])
        except NotFoundError:
            if self._of_attempts:
                self._troubles.setdefault(source.label, self._dropped(source))
            return  # else deleted since
        except CommandError as error:
            if type(error) is not CommandError:  # it has its own next step
                self._troubles.setdefault(source.label, error)
                return
            why = error.why.partition(": ")[2] if error.why.startswith(READING) else error.why
            next_step = f"see: strom job describe {self._job}"
            trouble = CommandError(error.what, why, f"{next_step} -n {self._namespace}")
            self._troubles.setdefault(source.label, trouble)
            return
        self._troubles.pop(source.label, None)
        self._seen_bytes.setdefault(key, 0)
        yield from lines.end()

    def _dropped(self, source: log_lines.Source) -> CommandError:
        """The error for a deleted pod: only process nodes keep the logs of such pods."""
        why = f"the pod of {source.label} is deleted, and its kubelet has dropped the log"
        next_step = f"see how it ended: strom job history {self._job} -n {self._namespace}"
        return CommandError(f"job {self._namespace}/{self._job}", why, next_step)

    def _show(self, source: log_lines.Source, line: str, prefixes: dict[str, str]) -> None:
        if not self._prefix:
            typer.echo(line)
            return
        before = prefixes.get(source.label, f"{source.label} | ")
        if sys.stdout.isatty():
            before = typer.style(before, fg=source.colour)
        typer.echo(before + line, color=output.colour())


def _has_ended(client: "Client", namespace: str, name: str) -> bool:
    try:
        job = client.decode(kinds.JOBS, client.job(namespace, name))
    except NotFoundError:
        return True
    return phases.phase_of(job) in phases.ENDS
