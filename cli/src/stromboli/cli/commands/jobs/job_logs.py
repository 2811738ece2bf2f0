"""``strom job logs``: what the pods of a job write, each line with whose it is."""

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from stromboli.cli import options
from stromboli.cli.errors import CommandError, NotFoundError
from stromboli.cli.render import log_lines, output, pod_status
from stromboli.client import calls, phases
from stromboli.shared.api import kinds

if TYPE_CHECKING:
    from stromboli.cli.client import Client

MOST_STREAMS = 64
"""Streams followed at once, each a connection here and one from the server to a node."""
READING = "read the log of "
"""So begins what the server says of a log; the pod that follows is named anyway."""
LOOK_EVERY_S = 1.0
"""How soon pods that start later are taken in."""


def logs(
    name: options.JobName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
    task: options.Task = None,
    index: options.Index = None,
    container: options.Container = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, help="Only so many last lines of each.")
    ] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="What was written before the last restart.")
    ] = False,
    prefix: Annotated[
        bool, typer.Option("--prefix/--no-prefix", help="Say before each line whose it is.")
    ] = True,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Show what the pods of a job wrote, all of them or those of --task and --index."""
    with options.client(server) as client:
        job = client.decode(kinds.JOBS, client.job(namespace, name))
        if problem := log_lines.unknown_task(job, task):
            raise CommandError(
                f"job {namespace}/{name}",
                problem,
                f"see its tasks: strom job view {name} -n {namespace}",
            )

        def look() -> list[log_lines.Source]:
            try:
                pods = [pod_status.decode(raw) for raw in client.pods(namespace, name)]
            except NotFoundError:
                return []  # deleted meanwhile
            wanted = log_lines.select_pods(pods, task, index)
            return log_lines.log_sources(wanted, name, container)

        why = f"see why: strom explain {name} -n {namespace}"

        reader = _LogReader(
            client, namespace, name, tail, previous=previous, follow=follow, prefix=prefix
        )
        if not follow:
            found = look()
            if not found:
                which = "No pod" if index is None else f"No pod with the number {index}"
                is_over = phases.phase_of(job) in phases.ENDS
                more = "; the job has ended" if is_over else f" yet; wait with --follow, or {why}"
                output.show_note(f"{which} has started{more}.")
            reader.read(found)
            return
        if not look():
            output.show_note(f"No pod has started yet; waiting for one. To {why}.")
        reader.follow(look, lambda: _has_ended(client, namespace, name))


class _LogReader:
    """Reads sources, one after the other or all at once, and shows their lines."""

    def __init__(
        self,
        client: "Client",
        namespace: str,
        job: str,
        tail: int | None,
        *,
        previous: bool,
        follow: bool,
        prefix: bool,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._job = job
        self._tail = tail
        self._previous = previous
        self._follow = follow
        self._prefix = prefix
        self._lines: queue.Queue[tuple[log_lines.Source, str | None]] = queue.Queue(10_000)
        self._seen_bytes: dict[tuple[str, str, int], int] = {}
        self._troubles: dict[str, CommandError] = {}

    def read(self, found: list[log_lines.Source]) -> None:
        """All of them in order. Raises the first trouble, once the others are shown."""
        prefixes = log_lines.line_prefixes(found)
        for source in found:
            for line in self._stream(source):
                self._show(source, line, prefixes)
        for trouble in self._troubles.values():
            raise trouble

    def follow(
        self, look: Callable[[], list[log_lines.Source]], has_ended: Callable[[], bool]
    ) -> None:
        """Until the job has ended and nothing more comes."""
        reading: set[tuple[str, str, int]] = set()
        done: set[tuple[str, str, int]] = set()
        found: list[log_lines.Source] = []
        is_told = False
        looked_at = -LOOK_EVERY_S
        is_over = False
        while True:
            if time.monotonic() - looked_at >= LOOK_EVERY_S:
                was_over, is_over = is_over, has_ended()
                found = found if was_over else look()
                looked_at = time.monotonic()
                for source in found:
                    key = (source.uid, source.container, source.restarts)
                    if key in reading or (key in done and (source.is_over or is_over)):
                        continue
                    if len(reading) >= MOST_STREAMS:
                        if not is_told:
                            output.show_note(
                                f"strom: {MOST_STREAMS} of {len(found)} containers are followed at "
                                "once; choose with --task and --index"
                            )
                        is_told = True
                        break
                    reading.add(key)
                    threading.Thread(target=self._feed, args=(source,), daemon=True).start()
            try:
                source, line = self._lines.get(timeout=LOOK_EVERY_S / 4)
            except queue.Empty:
                if is_over and not reading:
                    break
                continue
            if line is None:
                key = (source.uid, source.container, source.restarts)
                reading.discard(key)
                done.add(key)
            else:
                self._show(source, line, log_lines.line_prefixes(found))
        for trouble in self._troubles.values():
            output.show_note(trouble.lines()[0])

    def _feed(self, source: log_lines.Source) -> None:
        try:
            for line in self._stream(source):
                self._lines.put((source, line))
        finally:
            self._lines.put((source, None))

    def _stream(self, source: log_lines.Source) -> Iterator[str]:
        """The source's lines; after a break what was seen already is passed over."""
        key = (source.uid, source.container, source.restarts)
        is_again = key in self._seen_bytes
        skip = self._seen_bytes.get(key, 0) if self._tail is None else 0
        call = calls.log(
            self._namespace,
            source.pod,
            source.container,
            follow=self._follow,
            previous=self._previous,
            tail_lines=0 if is_again and self._tail is not None else self._tail,
        )
        lines = log_lines.LineBuffer()
        try:
            with self._client.stream(call) as chunks:
                for chunk in chunks:
                    passed = min(skip, len(chunk))
                    skip -= passed
                    self._seen_bytes[key] = self._seen_bytes.get(key, 0) + len(chunk) - passed
                    yield from lines.feed(chunk[passed:])
        except NotFoundError:
            return  # it went meanwhile
        except CommandError as error:
            if type(error) is not CommandError:  # it has its own next step
                self._troubles.setdefault(source.label, error)
                return
            why = error.why.partition(": ")[2] if error.why.startswith(READING) else error.why
            next_step = f"see what became of it: strom job describe {self._job}"
            trouble = CommandError(error.what, why, f"{next_step} -n {self._namespace}")
            self._troubles.setdefault(source.label, trouble)
            return
        self._troubles.pop(source.label, None)
        self._seen_bytes.setdefault(key, 0)
        yield from lines.end()

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
