"""Compares configurations over seeds: means, confidence intervals and paired differences.

Every configuration runs the same workloads. With several seeds, each seed draws the durations of
all jobs with replacement from jobs of the same queue and size (a bootstrap of the workload within
these groups); submissions, sizes and queues stay. Differences are paired by seed, so the variation
that all configurations share does not count.

Intervals are Student's t at 95 %: mean +- t(n - 1) * s / sqrt(n).
"""

import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from stromboli.embedded.simulation.core import results, workload

MEASURES = (
    "finished",
    "makespan_s",
    "jct_mean_s",
    "jct_p50_s",
    "jct_p95_s",
    "jct_p99_s",
    "wait_mean_s",
    "wait_p95_s",
    "cpu_utilisation",
    "gpu_utilisation",
    "fragmentation",
    "fairness_jain",
    "deserved_distance",
    "evictions",
    "data_fetched_gb",
    "data_wait_mean_s",
)
"""Numbers of a summary that are compared."""
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom; 1.96 beyond."""


class Interval(msgspec.Struct, frozen=True):
    """A mean over seeds; ``half_width`` of its 95 % interval, None for a single seed."""

    mean: float
    half_width: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether zero is outside the interval."""
        return self.half_width is not None and abs(self.mean) > self.half_width

    def text(self) -> str:
        """The interval as text: ``12.3 ± 0.4``."""
        mean = f"{self.mean:.6g}"
        return mean if self.half_width is None else f"{mean} ± {self.half_width:.3g}"


class Compared(msgspec.Struct, frozen=True):
    """One configuration: measure -> mean, and measure -> difference from the first configuration.

    A measure that a configuration does not have is absent, such as fairness without queues' shares.
    """

    name: str
    measures: dict[str, Interval]
    differences: dict[str, Interval]


def resampled(jobs: Sequence[workload.Job], draws: Sequence[float]) -> tuple[workload.Job, ...]:
    """The jobs with durations drawn within groups. ``draws``: a number in [0, 1) for each job."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for job in jobs:
        groups.setdefault(_group(job), []).append(job.duration_us)
    resampled_jobs = []
    for job, draw in zip(jobs, draws, strict=True):
        durations = groups[_group(job)]
        duration_us = durations[int(draw * len(durations))]
        resampled_jobs.append(msgspec.structs.replace(job, duration_us=duration_us))
    return tuple(resampled_jobs)


def _group(job: workload.Job) -> tuple[object, ...]:
    return job.queue, job.tasks, job.resources.amounts()


def compare(runs: Mapping[str, Sequence[results.Summary]]) -> list[Compared]:
    """Compare configurations; each has one summary per seed, in the same order of seeds."""
    values = {
        name: {
            measure: [float(getattr(each, measure)) for each in summaries]
            for measure in MEASURES
            if all(getattr(each, measure) is not None for each in summaries)
        }
        for name, summaries in runs.items()
    }
    first = next(iter(values.values()))
    return [
        Compared(
            name,
            {measure: interval(samples) for measure, samples in measured.items()},
            {
                measure: interval(
                    [own - other for own, other in zip(samples, first[measure], strict=True)]
                )
                for measure, samples in measured.items()
                if measure in first
            },
        )
        for name, measured in values.items()
    ]


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % interval of independent values."""
    mean = statistics.fmean(values)
    count = len(values)
    if count < 2:
        return Interval(mean, None)
    t95 = _T95[count - 2] if count - 2 < len(_T95) else 1.96
    return Interval(mean, t95 * statistics.stdev(values) / math.sqrt(count))
