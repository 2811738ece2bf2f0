"""``strom simulate compare``: its options."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stromboli.embedded.commands import run

MOST_SEEDS = 1000


class Format(StrEnum):
    """Values of ``--output``."""

    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


def compare(
    configs: Annotated[
        list[Path],
        typer.Argument(
            help="Scheduler configurations. The others are compared with the first one.",
            metavar="CONFIG",
        ),
    ],
    nodes: run.NodesOption,
    jobs: run.JobsOption,
    queues: run.QueuesOption = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_SEEDS,
            help="Number of runs of each configuration. 1: the workload as it is. More: each run "
            "draws the durations of jobs from jobs of the same queue and size.",
        ),
    ] = 1,
    until: Annotated[
        float | None, typer.Option(min=0, metavar="T", help="Stop after this many virtual seconds.")
    ] = None,
    on_evict: run.OnEvictOption = run.OnEvict.RESTART,
    failures: run.FailuresOption = None,
    reservations: run.ReservationsOption = None,
    session_interval: run.IntervalOption = 0.0,
    session_pause: run.PauseOption = 0.0,
    report_file: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE.html", help="Write plots of all measures to this HTML file."
        ),
    ] = None,
    output_format: Annotated[
        Format, typer.Option("--output", "-o", help="Output format.", case_sensitive=False)
    ] = Format.TABLE,
) -> None:
    """Compare scheduler configurations on one workload.

    Shows each measure as mean ± half width of its 95 % confidence interval over the seeds, and the
    difference from the first configuration, paired by seed; * marks a difference whose interval
    excludes zero. With json, the last line of stdout is one JSON object.
    """
    from stromboli.embedded.simulation import compare

    compare.compare(
        configs=configs,
        nodes=nodes,
        jobs=jobs,
        queues=queues,
        seeds=seeds,
        until=until,
        keeps_progress=on_evict is run.OnEvict.KEEP,
        failures=failures,
        reservations=reservations,
        session_interval=session_interval,
        session_pause=session_pause,
        report_file=report_file,
        output_format=output_format,
    )
