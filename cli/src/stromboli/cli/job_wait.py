"""``strom job wait``: until a job is in a phase or has ended."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from stromboli.cli import job_view, options, output, waiting
from stromboli.cli.errors import CommandError, NotFoundError, TimedOutError
from stromboli.shared.api import batch, kinds

if TYPE_CHECKING:
    from stromboli.cli.client import Client


def wait(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    wanted: Annotated[
        str, typer.Option("--for", help="Phases to wait for: Running,Completed.", metavar="PHASES")
    ] = ",".join(sorted(waiting.ENDS)),
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="Give up after this long: 90s, 5m, 1.5h.")
    ] = None,
    server: options.Server = None,
) -> None:
    """Wait until a job is in a phase or has ended.

    Exit code 0: it is in that phase or Completed. 1: it ended as Failed, Aborted or Terminated,
    or is gone. 124: the time is up.
    """
    phases = options.phases(wanted, "--for")
    timeout_s = options.duration_s(timeout, "--timeout")
    with options.client(server) as client:
        until(client, namespace, name, phases, timeout_s)


def until(
    client: "Client", namespace: str, name: str, phases: frozenset[str], timeout_s: float | None
) -> None:
    """Wait, and show the last state. Raises Exit with 1 if it ended otherwise than Completed,
    CommandError if the job is gone, TimedOutError."""
    with _progress() as report:
        look = _look(client, namespace, name)
        try:
            job = waiting.until(
                look, phases, timeout_s, clock=time.monotonic, sleep=time.sleep, report=report
            )
        except waiting.GoneError:
            raise CommandError(
                f"job {namespace}/{name}", "it was deleted meanwhile", "submit it again"
            ) from None
        except TimeoutError as error:
            raise TimedOutError(
                f"job {namespace}/{name}",
                f"still {error} after {timeout_s:g} s",
                f"wait longer, or see why: strom explain {name} -n {namespace}",
            ) from None
    output.show_lines([job_view.progress(job)])
    if waiting.phase_of(job) in waiting.ENDS - {"Completed"}:
        raise typer.Exit(1)


def _look(client: "Client", namespace: str, name: str) -> Callable[[], batch.Job | None]:
    """Reads the job; that it is absent is an error the first time only."""
    seen = False

    def look() -> batch.Job | None:
        nonlocal seen
        try:
            job = client.decode(kinds.JOBS, client.job(namespace, name))
        except NotFoundError:
            if not seen:
                raise
            return None
        seen = True
        return job

    return look


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[batch.Job], None]]:
    """A line that changes in place on a terminal; a line per change elsewhere, both on stderr."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("waiting") as status:
            yield lambda job: status.update(job_view.progress(job))
        return
    last = ""

    def report(job: batch.Job) -> None:
        nonlocal last
        line = job_view.progress(job)
        if line != last and waiting.phase_of(job) not in waiting.ENDS:
            output.show_note(line)
        last = line

    yield report
