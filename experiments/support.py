"""Runs an experiment: variants of a scenario, each with the same seeds."""

from collections.abc import Callable, Mapping

import msgspec
import numpy as np
import yaml

from stromboli.embedded.simulation.core import (
    comparison,
    hardware,
    job_runs,
    kernel,
    results,
    workload,
)
from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.config import config_reader, configuration
from stromboli.shared import decoding, keys
from stromboli.shared.api import meta, scheduling

SECOND = workload.SECOND_US
GIB = 2**30


class Ran(msgspec.Struct, frozen=True):
    """A simulation that has ended. ``waits_s``, ``jcts_s``, ``slowdowns``, ``spans_s``: of finished
    jobs, by name; the third one is the factor by which the hardware made the job slower, the last
    one has start and end of each attempt."""

    summary: results.Summary
    waits_s: dict[str, float]
    jcts_s: dict[str, float]
    slowdowns: dict[str, float]
    spans_s: dict[str, list[tuple[float, float]]]


Measure = Callable[[Ran], float | None]
"""A number of a simulation; None if it needs a finished job and none finished. Tables then show
0."""
Shares = tuple[dict[str, list[float]], float]
"""Name -> its part of the cluster over equal steps of time, and the end in seconds."""


class Experiment(msgspec.Struct, frozen=True):
    """``scenarios``: seed -> variant -> scenario. ``measures``: heading -> number; the chart shows
    the first one. ``over_time``: variants whose ``shares`` over time are drawn in further charts;
    by default the shares of queues."""

    name: str
    scenarios: Callable[[int], Mapping[str, workload.Scenario]]
    measures: Mapping[str, Measure]
    over_time: tuple[str, ...] = ()
    shares: Callable[[workload.Scenario], Shares] | None = None


Found = dict[str, dict[str, comparison.Interval]]
"""Variant -> heading -> mean over the seeds with its 95 % interval."""


def run(experiment: Experiment, seeds: int) -> Found:
    """Simulate all variants with each seed."""
    values: dict[str, dict[str, list[float]]] = {}
    for seed in range(seeds):
        for variant, scenario in experiment.scenarios(seed).items():
            ran = simulate(scenario)
            for heading, measure in experiment.measures.items():
                values.setdefault(variant, {}).setdefault(heading, []).append(measure(ran) or 0.0)
    return {
        variant: {heading: comparison.interval(each) for heading, each in measured.items()}
        for variant, measured in values.items()
    }


def simulate(scenario: workload.Scenario) -> Ran:
    """Run one scenario to its end."""
    waits_s: dict[str, float] = {}
    jcts_s: dict[str, float] = {}
    slowdowns: dict[str, float] = {}
    spans_s: dict[str, list[tuple[float, float]]] = {}

    def add(ended: job_runs.JobRun) -> None:
        submit_us = ended.job.submit_us
        waits_s[ended.job.name] = (ended.first_start_us - submit_us) / SECOND
        jcts_s[ended.job.name] = (ended.end_us - submit_us) / SECOND
        slowdowns[ended.job.name] = ended.slowdown
        spans_s[ended.job.name] = [(at / SECOND, to / SECOND) for at, to in ended.spans_us]

    simulated = kernel.Simulation(scenario, add)
    simulated.run()
    summary = results.summarize(simulated, scenario.options.seed)
    return Ran(summary, waits_s, jcts_s, slowdowns, spans_s)


def shares_over_time(scenario: workload.Scenario) -> Shares:
    """The dominant shares of queues."""
    simulated = kernel.Simulation(scenario)
    simulated.run()
    measured, end_us = simulated.measured, simulated.measured.last_end_us
    shares = {name: meter.share.means(end_us) for name, meter in sorted(measured.queues.items())}
    return shares, end_us / SECOND


def table(intervals: Found) -> str:
    """The result as Markdown: a row for each variant."""
    headings = list(next(iter(intervals.values())))
    lines = [f"| | {' | '.join(headings)} |", f"|---|{'---:|' * len(headings)}"]
    for variant, measured in intervals.items():
        lines.append(f"| {variant} | {' | '.join(_text(each) for each in measured.values())} |")
    return "\n".join(lines)


def _text(interval: comparison.Interval) -> str:
    digits = 0 if abs(interval.mean) >= 100 else 1 if abs(interval.mean) >= 10 else 2
    mean = f"{interval.mean:,.{digits}f}"
    if not interval.half_width:
        return mean
    return f"{mean} ± {interval.half_width:,.{digits}f}"


LARGE_AND_SMALL: Mapping[str, Measure] = {
    "wait of the large job, s": lambda ran: ran.waits_s.get("large", float("nan")),
    "mean wait of small jobs, s": lambda ran: mean(ran.waits_s, "small"),
    "CPU utilisation": lambda ran: ran.summary.cpu_utilisation,
}
"""Measures of a job ``large`` among those of ``small_jobs``."""


def mean(values: Mapping[str, float], prefix: str = "") -> float:
    """The mean over the jobs whose names begin with ``prefix``; 0 without any."""
    chosen = [value for name, value in values.items() if name.startswith(prefix)]
    return sum(chosen) / len(chosen) if chosen else 0.0


def part_at_full_speed(ran: Ran) -> float:
    """The part of the finished jobs that the hardware did not make slower."""
    return sum(factor == 1 for factor in ran.slowdowns.values()) / max(1, len(ran.slowdowns))


def configured(text: str) -> configuration.Configuration:
    """A scheduler configuration as users write it."""
    return config_reader.read_configuration(yaml.safe_load(text), actions.NAMES, plugins.NAMES)


def queue(
    name: str, annotations: Mapping[str, str] | None = None, **spec: object
) -> scheduling.Queue:
    """A queue with these fields of its specification."""
    queue_spec = decoding.convert({"reclaimable": True, **spec}, scheduling.QueueSpec)
    metadata = meta.ObjectMeta(name=name, annotations=dict(annotations or {}) or None)
    return scheduling.Queue(metadata=metadata, spec=queue_spec)


def job(
    name: str,
    submit_s: float,
    duration_s: float,
    *,
    tasks: int = 1,
    min_available: int | None = None,
    cpu: float = 0.0,
    memory_gib: float = 0.0,
    gpus: int = 0,
    queue: str = "default",
    priority: int = 0,
    is_synchronous: bool = False,
    user: str = "",
) -> workload.Job:
    """A job; its gang is all of its tasks by default. ``user``: who submitted it."""
    return workload.Job(
        name=name,
        submit_us=round(submit_s * SECOND),
        duration_us=round(duration_s * SECOND),
        tasks=tasks,
        min_available=tasks if min_available is None else min_available,
        resources=workload.Resources(round(cpu * 1000), round(memory_gib * GIB), gpus),
        queue=queue,
        priority=priority,
        is_synchronous=is_synchronous,
        annotations={keys.USER: user} if user else {},
    )


def small_jobs(
    random: np.random.Generator, count: int, *, every_s: float, cpu: float
) -> list[workload.Job]:
    """Jobs of one pod, ``small-0`` and so on, with Poisson arrivals and lognormal run times."""
    arrivals = np.cumsum(random.exponential(every_s, count))
    return [
        job(f"small-{at}", float(arrivals[at]), float(random.lognormal(np.log(600), 0.8)), cpu=cpu)
        for at in range(count)
    ]


def nodes(
    count: int, *, cpu: float = 0.0, memory_gib: float = 0.0, gpus: int = 0
) -> tuple[workload.NodeGroup, ...]:
    """Equal nodes."""
    resources = workload.Resources(round(cpu * 1000), round(memory_gib * GIB), gpus)
    return (workload.NodeGroup("node", count, resources),)


def scenario(
    cluster: tuple[workload.NodeGroup, ...],
    jobs: list[workload.Job],
    text: str,
    *queues: scheduling.Queue,
    until_s: float | None = None,
    keeps_progress: bool = False,
    model: hardware.Hardware | None = None,
) -> workload.Scenario:
    """A scenario with a scheduler configuration. ``model``: of hardware that makes jobs slower."""
    options = workload.Options(
        configured=configured(text),
        until_us=workload.NEVER_US if until_s is None else round(until_s * SECOND),
        keeps_progress=keeps_progress,
    )
    ordered = tuple(sorted(jobs, key=lambda each: each.submit_us))
    return workload.Scenario(cluster, ordered, tuple(queues), (), options, hardware=model)
