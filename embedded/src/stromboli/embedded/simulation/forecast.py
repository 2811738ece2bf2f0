"""``strom simulate forecast``: when the pending jobs of a cluster are expected to start."""

import csv
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import numpy as np

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


def forecast(
    *,
    objects: list[str],
    config: Path | None,
    history: Path | None,
    now: datetime | None,
    draws: int,
    seed: int,
    output_format: str,
) -> None:
    """Simulate the cluster's pending jobs and print their expected starts."""
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


def _show(output_format: str, starts: list[expected_starts.ExpectedStart]) -> None:
    match output_format:
        case "table":
            headers = ["PODGROUP", "QUEUE", "P10", "P50", "P90", "ANSWER", "REASON"]
            output.show_table(headers, [_row(each) for each in starts])
        case "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(expected_starts.ExpectedStart.__struct_fields__)
            for each in starts:
                writer.writerow(getattr(each, name) for name in each.__struct_fields__)
        case "json":
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
