"""``strom simulate run``: its options, some of which other commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """Values of ``--output``."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


class OnEvict(StrEnum):
    """Values of ``--on-evict``."""

    RESTART = "restart"
    KEEP = "keep"


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        help="Scheduler configuration, as volcano-scheduler.conf. [default: the built-in one]",
        metavar="FILE",
    ),
]
OutputOption = Annotated[
    Format, typer.Option("--output", "-o", help="Output format.", case_sensitive=False)
]
NodesOption = Annotated[
    Path,
    typer.Option(
        help="Nodes as CSV with columns such as name, count, cpu, memory_gib, gpu and labels; only "
        "name is required. docs/simulation.md lists all.",
        metavar="FILE",
    ),
]
JobsOption = Annotated[
    Path,
    typer.Option(
        help="Jobs as CSV with columns such as job, submit_s, duration_s, tasks, cpu, gpu, queue "
        "and priority; only submit_s and duration_s are required. docs/simulation.md lists all.",
        metavar="FILE",
    ),
]
QueuesOption = Annotated[
    Path | None,
    typer.Option(
        help="Queues as YAML. [default: each queue that a job names, with weight 1]",
        metavar="FILE",
    ),
]
FailuresOption = Annotated[
    Path | None,
    typer.Option(help="Failures of nodes as CSV: node,down_s,up_s.", metavar="FILE"),
]
ReservationsOption = Annotated[
    Path | None,
    typer.Option(
        help="AdvanceReservations as YAML; time 0 is 2026-01-01T00:00:00Z.", metavar="FILE"
    ),
]
OnEvictOption = Annotated[
    OnEvict,
    typer.Option(help="Whether an evicted job starts over, or continues where it was."),
]
IntervalOption = Annotated[
    float,
    typer.Option(
        min=0,
        help="Minimum virtual seconds between sessions that decide something: 0 is exact, a higher "
        "number is faster.",
    ),
]
PauseOption = Annotated[
    float,
    typer.Option(
        min=0,
        help="Virtual seconds between any two sessions, such as the service's 0.005: closer to a "
        "running system. With 0, decisions have no latency.",
    ),
]


def run(
    nodes: NodesOption,
    jobs: JobsOption,
    queues: QueuesOption = None,
    config: ConfigOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the plugins' random numbers.")] = 0,
    until: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="T",
            help="Stop after this many virtual seconds. [default: when no event is left]",
        ),
    ] = None,
    on_evict: OnEvictOption = OnEvict.RESTART,
    failures: FailuresOption = None,
    reservations: ReservationsOption = None,
    session_interval: IntervalOption = 0.0,
    session_pause: PauseOption = 0.0,
    report_file: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            help="Write charts of shares, queue lengths, reasons and jobs to this HTML file.",
        ),
    ] = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Simulate a workload with the real scheduler, in virtual time.

    Decisions are made by the scheduler's cache and sessions; jobs follow the controller's life
    cycle. The table shows a summary, csv one line per job. With json, the last line of stdout is
    one JSON object. Jobs that do not finish are listed with the scheduler's reason.
    """
    from stromboli.embedded.simulation import run

    run.run(
        nodes=nodes,
        jobs=jobs,
        queues=queues,
        config=config,
        seed=seed,
        until=until,
        keeps_progress=on_evict is OnEvict.KEEP,
        failures=failures,
        reservations=reservations,
        session_interval=session_interval,
        session_pause=session_pause,
        report_file=report_file,
        output_format=output_format,
    )
