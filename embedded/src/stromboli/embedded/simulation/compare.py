"""``strom simulate compare``: one workload under several configurations."""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.embedded.simulation import inputs, report, run
from stromboli.embedded.simulation.core import comparison, job_runs, results, workload
from stromboli.shared.formats.counts import counted


class Report(msgspec.Struct, frozen=True):
    """The result of a comparison, as ``--output json`` prints it."""

    seeds: int
    configurations: list[comparison.Compared]


def compare(
    *,
    configs: list[Path],
    nodes: Path,
    jobs: Path,
    queues: Path | None,
    seeds: int,
    until: float | None,
    keeps_progress: bool,
    failures: Path | None,
    reservations: Path | None,
    session_interval: float,
    session_pause: float,
    report_file: Path | None,
    output_format: str,
) -> None:
    """Simulate the workload with each configuration and print the comparison."""
    workload_inputs = inputs.read(nodes, jobs, queues, failures, reservations)
    names = _names(configs)
    options = workload.Options(
        until_us=workload.NEVER_US if until is None else round(until * workload.SECOND_US),
        keeps_progress=keeps_progress,
        interval_us=round(session_interval * workload.SECOND_US),
        pause_us=round(session_pause * workload.SECOND_US),
    )
    configured = {
        name: msgspec.structs.replace(options, configured=run.used_configuration(path))
        for name, path in zip(names, configs, strict=True)
    }
    summaries: dict[str, list[results.Summary]] = {name: [] for name in names}
    for seed in range(seeds):
        drawn = workload_inputs if seeds == 1 else _drawn(workload_inputs, seed)
        for name, chosen in configured.items():
            seeded = msgspec.structs.replace(chosen, seed=seed)
            summaries[name].append(results.summarize(run.simulate(drawn, seeded, _ignore), seed))
            output.show_note(f"seed {seed}, {name}: {_line(summaries[name][-1])}")
    compared = comparison.compare(summaries)
    if report_file is not None:
        title = f"{jobs.name} on {nodes.name} under {len(names)} configurations"
        run.write(report_file, report.comparison_document(compared, seeds, title))
    _show(output_format, compared, seeds)


def _names(configs: Sequence[Path]) -> list[str]:
    names = [path.stem for path in configs]
    if len(set(names)) < len(names):
        names = [str(path) for path in configs]
    if len(set(names)) < len(names):
        raise CommandError("the configurations", "a file is given twice", "pass each file once")
    return names


def _drawn(workload_inputs: inputs.Inputs, seed: int) -> inputs.Inputs:
    draws = np.random.default_rng(seed).random(len(workload_inputs.jobs)).tolist()
    return msgspec.structs.replace(
        workload_inputs, jobs=comparison.resampled(workload_inputs.jobs, draws)
    )


def _ignore(_: job_runs.JobRun) -> None:
    pass


def _line(summary: results.Summary) -> str:
    finished = f"{summary.finished} of {counted(summary.jobs, 'job')} finished"
    if summary.jct_mean_s is None or summary.wait_mean_s is None:
        return finished
    jct, wait = f"{summary.jct_mean_s:.1f}", f"{summary.wait_mean_s:.1f}"
    return f"{finished}, mean JCT {jct} s, mean wait {wait} s"


def _show(output_format: str, compared: list[comparison.Compared], seeds: int) -> None:
    headers, rows = table(compared)
    match output_format:
        case "table":
            output.show_table([header.upper() for header in headers], rows)
        case "markdown":
            output.show_lines(
                [
                    f"| {' | '.join(headers)} |",
                    f"|---|{'---:|' * (len(headers) - 1)}",
                    *(f"| {' | '.join(row)} |" for row in rows),
                ]
            )
        case "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(("configuration", "measure", "mean", "half_width"))
            for each in compared:
                for measure, interval in each.measures.items():
                    writer.writerow((each.name, measure, interval.mean, interval.half_width))
        case "json":
            output.show_lines([msgspec.json.encode(Report(seeds, compared)).decode()])


def table(compared: Sequence[comparison.Compared]) -> tuple[list[str], list[list[str]]]:
    """Return headers and a row for each measure. Each configuration after the first also has a
    column with its difference from the first one."""
    first, *others = compared
    headers = ["measure", first.name]
    for each in others:
        headers += [each.name, f"{each.name} - {first.name}"]
    rows = []
    for measure in comparison.MEASURES:
        if not any(measure in each.measures for each in compared):
            continue
        row = [measure, _text(first.measures.get(measure))]
        for each in others:
            difference = each.differences.get(measure)
            mark = " *" if difference is not None and difference.excludes_zero else ""
            row += [_text(each.measures.get(measure)), _text(difference) + mark]
        rows.append(row)
    return headers, rows


def _text(interval: comparison.Interval | None) -> str:
    return "-" if interval is None else interval.text()
