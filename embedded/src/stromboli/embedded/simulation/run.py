"""``strom simulate run``: a workload on a cluster in virtual time."""

import contextlib
import csv
import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.embedded import scheduler_file
from stromboli.embedded.simulation import inputs, report
from stromboli.embedded.simulation.core import job_runs, kernel, results, workload
from stromboli.scheduler import discovery
from stromboli.scheduler.core.config import configuration
from stromboli.shared.formats.counts import counted

MOST_SHOWN = 20
"""Maximum unfinished jobs that the table shows."""


def run(
    *,
    nodes: Path,
    jobs: Path,
    queues: Path | None,
    config: Path | None,
    seed: int,
    until: float | None,
    keeps_progress: bool,
    failures: Path | None,
    reservations: Path | None,
    session_interval: float,
    session_pause: float,
    report_file: Path | None,
    output_format: str,
) -> None:
    """Simulate the workload and print its results."""
    workload_inputs = inputs.read(nodes, jobs, queues, failures, reservations)
    options = workload.Options(
        configured=used_configuration(config),
        until_us=workload.NEVER_US if until is None else round(until * workload.SECOND_US),
        keeps_progress=keeps_progress,
        interval_us=round(session_interval * workload.SECOND_US),
        pause_us=round(session_pause * workload.SECOND_US),
        seed=seed,
    )
    writer = _JobTable() if output_format == "csv" else None
    waits = report.LongestWaits()

    def finished(ended: job_runs.JobRun) -> None:
        waits.add(ended)
        if writer is not None:
            writer.add(ended)

    simulated = simulate(workload_inputs, options, finished)
    if writer is not None:
        for unfinished, _, _ in simulated.unfinished():
            writer.add(unfinished)
    summary = results.summarize(simulated, seed)
    if report_file is not None:
        title = f"Simulation of {jobs.name} on {nodes.name}"
        write(report_file, report.document(simulated, summary, waits, title))
    if output_format == "json":
        output.show_lines([msgspec.json.encode(summary).decode()])
    elif output_format == "table":
        _show_table(summary)
    if summary.unfinished:
        output.show_note(
            f"strom: {summary.unfinished} of {counted(summary.jobs, 'job')} did not finish: "
            f"{summary.stopped}"
        )


def simulate(
    workload_inputs: inputs.Inputs,
    options: workload.Options,
    on_finished: Callable[[job_runs.JobRun], None],
) -> kernel.Simulation:
    """Run a simulation with the plugins of this environment."""
    scenario = workload.Scenario(
        workload_inputs.nodes,
        workload_inputs.jobs,
        workload_inputs.queues,
        workload_inputs.failures,
        options,
        workload_inputs.reservations,
    )
    simulated = kernel.Simulation(scenario, on_finished, discovery.discover_plugins().find)
    with rare_collections():
        simulated.run()
    return simulated


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Run the garbage collector rarely while inside: the workload is kept to the end, and most
    objects of sessions have no cycles.

    Collections of all generations took a third of the time. With these thresholds there is one per
    500 million new objects.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def used_configuration(file: Path | None) -> configuration.Configuration:
    """The configuration of a file, or the built-in one; its warnings go to stderr."""
    loaded = scheduler_file.read(None if file is None else str(file))
    for warning in loaded.warnings:
        output.show_note(f"strom: {warning}")
    return loaded.configuration


def write(path: Path, text: str) -> None:
    """Write a report to a file. Raises CommandError if the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandError(str(path), why, "specify a writable file") from None


class _JobTable:
    """Writes one line per job to stdout, in the order in which jobs end."""

    def __init__(self) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        self._writer.writerow(results.JobResult.__struct_fields__)

    def add(self, run: job_runs.JobRun) -> None:
        """Write the line of a job."""
        job_result = results.job_result(run)
        self._writer.writerow(getattr(job_result, name) for name in job_result.__struct_fields__)


def _is_absent(summary: results.Summary, name: str) -> bool:
    """Whether a measure of data sets is absent, because no job has any."""
    return name.startswith("data_") and getattr(summary, name) is None


def _show_table(summary: results.Summary) -> None:
    rows = [
        [name, results.shown(getattr(summary, name))]
        for name in summary.__struct_fields__
        if name not in ("queues", "unfinished_jobs") and not _is_absent(summary, name)
    ]
    output.show_table(["MEASURE", "VALUE"], rows)
    headers = ["QUEUE", "JOBS", "FINISHED", "EVICTIONS", "MEAN SHARE", "MEAN WAIT", "MEAN JCT"]
    output.show_lines([""])
    output.show_table(
        headers,
        [
            [
                each.queue,
                str(each.jobs),
                str(each.finished),
                str(each.evictions),
                f"{each.share_mean:.4f}",
                results.shown(each.wait_mean_s),
                results.shown(each.jct_mean_s),
            ]
            for each in summary.queues
        ],
    )
    if summary.unfinished_jobs:
        output.show_lines([""])
        output.show_table(
            ["UNFINISHED JOB", "STATUS", "REASON"],
            [[each.job, each.status, each.reason] for each in summary.unfinished_jobs[:MOST_SHOWN]],
        )
