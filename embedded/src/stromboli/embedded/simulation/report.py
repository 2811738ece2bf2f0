"""The report of a simulation: one HTML file with charts, without script and external resources."""

import heapq
from collections.abc import Iterable, Sequence
from html import escape

from stromboli.embedded.simulation import svg
from stromboli.embedded.simulation.core import comparison, job_runs, kernel, results, workload
from stromboli.shared.formats import counts

MOST_BARS = 200
"""Maximum jobs in the Gantt chart: those that waited longest."""
MOST_QUEUES = 9
"""Maximum queues with a separate line; the others are summed up in one line."""
OTHERS = "other queues"
_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em;
  color: #222; background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
svg { width: 100%; height: auto; } svg text { font-size: 10px; fill: #555; }
table { border-collapse: collapse; } td, th { padding: 2px 12px 2px 0; text-align: left;
  border-bottom: 1px solid #ddd; vertical-align: top; } td.n { text-align: right; }
ul.legend { list-style: none; padding: 0; margin: 0 0 0 64px; }
ul.legend li { display: inline-block; margin-right: 1.2em; }
ul.legend span { display: inline-block; width: 10px; height: 10px; margin-right: 5px; }
"""
_TIERS = {
    "enqueue": "not admitted to the queue",
    "resources": "no free resources",
    "share": "queue has reached its share",
    "predicates": "nodes reject it",
    "fragmentation": "free resources are fragmented",
    "never-fits": "can never fit",
    "gang": "pods are being created",
}


class LongestWaits:
    """Keeps the ``MOST_BARS`` jobs that waited longest."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, int, job_runs.JobRun]] = []

    def add(self, run: job_runs.JobRun) -> None:
        """Add a finished job."""
        item = (run.first_start_us - run.job.submit_us, -run.number, run)
        if len(self._kept) < MOST_BARS:
            heapq.heappush(self._kept, item)
        else:
            heapq.heappushpop(self._kept, item)

    def with_unfinished(self, runs: Iterable[job_runs.JobRun]) -> list[job_runs.JobRun]:
        """Unfinished jobs and the longest waits, at most ``MOST_BARS``, in order of submission."""
        longest = [run for _, _, run in sorted(self._kept, reverse=True)]
        return sorted([*runs, *longest][:MOST_BARS], key=lambda run: run.number)


def document(
    simulated: kernel.Simulation, summary: results.Summary, waits: LongestWaits, title: str
) -> str:
    """The report of a simulation as one HTML document."""
    measured, end_us = simulated.measured, max(1, simulated.now_us)
    end_s = end_us / workload.SECOND_US
    main = "GPUs" if measured.total_integrals[2] else "CPU"
    names = _largest_queues(summary)
    shares = _by_queue(simulated, names, "share")
    lengths = _by_queue(simulated, names, "waiting")
    tiers = {
        _TIERS.get(tier, tier): series.means(end_us)
        for tier, series in sorted(measured.tiers.items())
    }
    runs = waits.with_unfinished(simulated.runs.values())
    sections = [
        _summary(summary),
        f"<h2>Utilisation of {main}</h2>"
        + svg.lines(f"Utilisation of {main}", {main: measured.utilisation.means(end_us)}, end_s),
        "<h2>Share of the cluster by queue</h2>"
        + svg.areas("Share of the cluster by queue", shares, end_s),
        "<h2>Waiting jobs by queue</h2>" + svg.areas("Waiting jobs by queue", lengths, end_s),
        "<h2>Why jobs wait</h2><p>Waiting jobs by the kind of reason that the scheduler gives.</p>"
        + svg.areas("Waiting jobs by reason", tiers, end_s),
        f"<h2>Jobs</h2><p>{_gantt_title(len(runs), summary.jobs)} Dashed: the job waits. "
        "The colour shows the queue.</p>"
        + svg.gantt("Jobs over time", [_bar(run, names, simulated.now_us) for run in runs], end_s)
        + svg.legend(names),
        _queues(summary),
        _unfinished(summary),
    ]
    return _page(title, sections)


def comparison_document(compared: Sequence[comparison.Compared], seeds: int, title: str) -> str:
    """The report of a comparison as HTML: a chart for each measure."""
    sections = [
        f"<p>Means over {seeds} seeds; whiskers are 95 % confidence intervals.</p>"
        if seeds > 1
        else "<p>The workload as it is, without intervals.</p>"
    ]
    for measure in comparison.MEASURES:
        estimates = {
            each.name: (each.measures[measure].mean, each.measures[measure].half_width or 0.0)
            for each in compared
            if measure in each.measures
        }
        if any(mean for mean, _ in estimates.values()):
            heading = measure.replace("_", " ")
            sections.append(f"<h2>{heading}</h2>" + svg.intervals(heading, estimates))
    return _page(title, sections)


def _page(title: str, sections: Sequence[str]) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1>{''.join(sections)}</body></html>\n"
    )


def _largest_queues(summary: results.Summary) -> list[str]:
    queue_results = sorted(summary.queues, key=lambda each: (-each.share_mean, each.queue))
    names = sorted(each.queue for each in queue_results[:MOST_QUEUES])
    return [*names, OTHERS] if len(queue_results) > MOST_QUEUES else names


def _by_queue(
    simulated: kernel.Simulation, names: Sequence[str], what: str
) -> dict[str, list[float]]:
    end_us = max(1, simulated.now_us)
    series: dict[str, list[float]] = {}
    for queue, meter in sorted(simulated.measured.queues.items()):
        means: list[float] = getattr(meter, what).means(end_us)
        name = queue if queue in names else OTHERS
        before = series.get(name, [0.0] * len(means))
        series[name] = [left + right for left, right in zip(before, means, strict=True)]
    return {name: series[name] for name in names if name in series}


def _gantt_title(drawn_jobs: int, jobs: int) -> str:
    return (
        "All jobs."
        if drawn_jobs == jobs
        else f"The {drawn_jobs} of {jobs} jobs that waited longest."
    )


def _bar(run: job_runs.JobRun, names: Sequence[str], now_us: int) -> svg.Bar:
    spans = list(run.spans_us)
    if run.phase == "Running":
        spans.append((run.started_us, now_us))
    queue = run.job.queue if run.job.queue in names else OTHERS
    return svg.Bar(
        run.job.name,
        run.job.submit_us / workload.SECOND_US,
        [(start / workload.SECOND_US, end / workload.SECOND_US) for start, end in spans],
        svg.COLOURS[names.index(queue) % len(svg.COLOURS)],
        _bar_text(results.job_result(run)),
    )


def _bar_text(job: results.JobResult) -> str:
    waited = "not started" if job.wait_s is None else f"waited {job.wait_s} s"
    ended = "not ended" if job.end_s is None else f"ended {job.end_s} s"
    return (
        f"{job.job}, queue {job.queue}: submitted {job.submit_s:g} s, {waited}, {ended}, "
        f"{counts.counted(job.evictions, 'eviction')}"
    )


def _summary(summary: results.Summary) -> str:
    rows = [
        [name.replace("_", " "), results.shown(getattr(summary, name))]
        for name in summary.__struct_fields__
        if name not in ("queues", "unfinished_jobs")
        and not (name.startswith("data_") and getattr(summary, name) is None)
    ]
    return "<h2>Summary</h2>" + _table(["measure", "value"], rows)


def _queues(summary: results.Summary) -> str:
    headers = ["queue", "jobs", "finished", "evictions", "mean share", "mean wait s", "mean JCT s"]
    rows = [
        [
            each.queue,
            str(each.jobs),
            str(each.finished),
            str(each.evictions),
            results.shown(each.share_mean),
            results.shown(each.wait_mean_s),
            results.shown(each.jct_mean_s),
        ]
        for each in summary.queues
    ]
    return "<h2>Queues</h2>" + _table(headers, rows)


def _unfinished(summary: results.Summary) -> str:
    if not summary.unfinished_jobs:
        return ""
    rows = [[each.job, each.status, each.reason] for each in summary.unfinished_jobs]
    return "<h2>Jobs that did not finish</h2>" + _table(["job", "status", "reason"], rows)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in headers)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
