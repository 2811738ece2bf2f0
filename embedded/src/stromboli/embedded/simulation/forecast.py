"""``strom simulate forecast``: when the pending jobs of a cluster are expected to start."""

import csv
import sys
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer

from stromboli.cli import files
from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.embedded.simulation import csv_rows, manifest_objects, run
from stromboli.scheduler import discovery
from stromboli.scheduler.core.forecast import expected_starts, run_times
from stromboli.shared.api.views.expected_start import StartAnswer

HISTORY_COLUMNS = ("user", "job", "queue", "tasks", "run_s")
_TEXTS: dict[StartAnswer, str] = {
    "starts": "",
    "not-within-7-days": "not within 7 days",
    "blocked-by-quota": "blocked by quota",
    "can-never-fit": "can never fit",
}


class Format(StrEnum):
    """Values of ``--output``."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def forecast(
    objects: Annotated[
        list[str],
        typer.Option(
            "--objects",
            metavar="FILE",
            help="The cluster, as `strom cluster dump` prints it; - for stdin. May be repeated.",
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            help="Scheduler configuration, as volcano-scheduler.conf. [default: the built-in one]",
            metavar="FILE",
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            help="Finished jobs as CSV, the oldest first: user,job,queue,tasks,run_s. Run times of "
            "jobs without an estimate are drawn from similar ones.",
            metavar="FILE",
        ),
    ] = None,
    now: Annotated[
        datetime | None,
        typer.Option(
            parser=manifest_objects.time,
            metavar="TIME",
            help="The time of --objects (RFC 3339). [default: now]",
        ),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(
            min=1, max=1000, help="Number of simulations, each with other drawn run times."
        ),
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the drawn run times.")] = 0,
    output_format: Annotated[
        Format, typer.Option("--output", "-o", help="Output format.", case_sensitive=False)
    ] = Format.TABLE,
) -> None:
    """Show when the pending jobs of a cluster are expected to start.

    Simulates the scheduler from the present state until all pending jobs have started, at most 7
    days ahead. Several draws of run times give a range: 80 % of them are between P10 and P90. A job
    may also be blocked by its queue's quota, or can never fit.
    """
    present = manifest_objects.cluster(objects, sys.stdin, now or datetime.now(UTC))
    learned = run_times.RunTimeEstimator()
    if history is not None:
        _learn(learned, history)
    numbers = np.random.default_rng(seed).random((draws, len(present.pod_groups)))
    with run.rare_collections():
        options = expected_starts.Options(
            configured=run.used_configuration(config), find=discovery.discover_plugins().find
        )
        starts = expected_starts.expected_starts(present, options, learned.draw, numbers.tolist())
    _show(output_format, starts)


def _learn(learned: run_times.RunTimeEstimator, path: Path) -> None:
    """Read finished jobs. Raises CommandError with every problem of the file."""
    problems = csv_rows.Problems()
    lines = files.text(str(path)).splitlines()
    for row in csv_rows.rows(lines, path.name, HISTORY_COLUMNS, ("job", "run_s"), problems):
        traits = run_times.JobTraits(
            row.text("user"),
            row.text("job"),
            row.text("queue", "default"),
            row.integer("tasks", 1, least=1),
        )
        learned.add(traits, row.number("run_s"))
    if problems.count:
        what = f"the list of finished jobs: {problems.count} problems"
        raise CommandError(what, "\n  ".join(problems.shown()), "correct these lines")


def _show(output_format: Format, starts: list[expected_starts.ExpectedStart]) -> None:
    match output_format:
        case Format.TABLE:
            headers = ["PODGROUP", "QUEUE", "P10", "P50", "P90", "ANSWER", "REASON"]
            output.show_table(headers, [_row(each) for each in starts])
        case Format.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(expected_starts.ExpectedStart.__struct_fields__)
            for each in starts:
                writer.writerow(getattr(each, name) for name in each.__struct_fields__)
        case Format.JSON:
            output.show_lines([msgspec.json.encode({"pod_groups": starts}).decode()])


def _row(each: expected_starts.ExpectedStart) -> list[str]:
    times = ["-"] * 3
    if each.answer == "starts":
        times = [_in(seconds) for seconds in (each.p10_s, each.p50_s, each.p90_s)]
    return [each.pod_group, each.queue, *times, _TEXTS[each.answer], each.reason]


def _in(seconds: float | None) -> str:
    if seconds is None:
        return f">{expected_starts.HORIZON.days}d"
    begin = datetime(2000, 1, 1, tzinfo=UTC)
    return output.duration(begin, begin + timedelta(seconds=round(seconds)))
