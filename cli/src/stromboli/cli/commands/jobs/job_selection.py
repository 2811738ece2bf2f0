"""Selects the jobs that a command changes: by name, or by ``--selector``, ``--state`` or
``--all``."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from stromboli.cli import options
from stromboli.cli.errors import CommandError
from stromboli.cli.job_specs import job_reference
from stromboli.cli.parameters import selectors
from stromboli.cli.render import listing, output
from stromboli.client.phases import PHASES, phase_of
from stromboli.shared.api import kinds
from stromboli.shared.formats import counts

if TYPE_CHECKING:
    from stromboli.cli.client import Client

SHOWN = 5
"""Maximum job names in the confirmation, which also gives the number of all jobs."""


def check(
    names: Sequence[str] | None,
    selector: str,
    phase: str | None,
    *,
    all_jobs: bool,
    takes_indexes: bool = False,
) -> None:
    """Raises BadParameter unless jobs are selected either by name or by options. ``takes_indexes``:
    a name may select indexes of an array."""
    for name in names or ():
        if not takes_indexes and job_reference.names_indexes(name):
            job = name.partition("[")[0]
            why = f"{name!r}: indexes cannot be suspended or restarted by themselves; the array is "
            why += f"one job, {job}. They can be cancelled (strom job delete) and, when they have "
            why += "ended, run again (strom job retry)"
            raise typer.BadParameter(why, param_hint="JOB")
        if any(letter in name for letter in "*?"):
            why = f"{name!r} has a wildcard, and names cannot have one; select jobs by labels with "
            why += "--selector KEY=VALUE, by phase with --state, or all with --all"
            raise typer.BadParameter(why, param_hint="JOB")
    by_options = bool(selector or phase or all_jobs)
    if bool(names) == by_options:
        raise typer.BadParameter(
            "set either names of jobs, or --selector, --state or --all", param_hint="JOB"
        )


def select(
    client: "Client",
    namespace: str,
    names: Sequence[str] | None,
    selector: str,
    phase: str | None,
    ignored: Callable[[str], bool] = lambda phase: False,
) -> list[str]:
    """The names of the selected jobs. Raises CommandError if no job matches the options.

    Jobs that are selected by options and in a phase that is ``ignored`` are left out: the command
    has no effect on them.
    """
    if names:
        return list(names)
    wanted = options.selector(selector)
    phases = options.phases(phase, "--state") if phase else frozenset(PHASES)
    jobs = [client.decode(kinds.JOBS, raw) for raw in client.jobs(namespace)]
    matching_jobs = [
        job
        for job in jobs
        if phase_of(job) in phases
        and not ignored(phase_of(job))
        and selectors.matches(wanted, job.metadata.labels)
    ]
    if not matching_jobs:
        raise CommandError(
            f"namespace {namespace}",
            "no job matches the options",
            f"list jobs: strom job list -n {namespace}",
        )
    return [job.metadata.name for job in sorted(matching_jobs, key=listing.by_name)]


def confirm(names: Sequence[str], verb: str, namespace: str) -> None:
    """Ask for confirmation if stdin is a terminal. Raises Exit with 1 for any other answer than
    yes."""
    if not sys.stdin.isatty():
        return
    preview = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    jobs = f"{counts.counted(len(names), 'job')} of namespace {namespace}"
    typer.echo(f"{verb} {jobs} ({preview})? [y/N] ", err=True, nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        output.show_note("Nothing was changed.")
        raise typer.Exit(1)
