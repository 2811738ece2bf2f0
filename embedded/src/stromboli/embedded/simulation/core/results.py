"""The result of a simulation as one document: all numbers of a summary, per queue and per job."""

from collections.abc import Sequence

import msgspec
import numpy as np

from stromboli.embedded.simulation.core import job_runs, kernel, measurements, workload

MOST_UNFINISHED = 1000
"""Unfinished jobs that a summary lists; ``unfinished`` counts all of them."""


class JobResult(msgspec.Struct, frozen=True):
    """One job, times in seconds. ``start_s``: start of the first attempt. None: it has not
    happened."""

    job: str
    queue: str
    submit_s: float
    start_s: float | None
    end_s: float | None
    wait_s: float | None
    evictions: int
    evicted_tasks: int
    status: str


class Unfinished(msgspec.Struct, frozen=True):
    """A job that had not finished at the end. ``can_never_start``: according to the scheduler it
    could not start even if all other jobs ended. ``reason``: the text of the scheduler's
    explanation."""

    job: str
    queue: str
    status: str
    can_never_start: bool
    reason: str


class QueueResult(msgspec.Struct, frozen=True):
    """One queue. ``share_mean``: mean dominant share over the makespan. ``*_hours``: usage of its
    tasks. Means of waits and JCTs are over finished jobs, None without one."""

    queue: str
    jobs: int
    finished: int
    evictions: int
    share_mean: float
    cpu_hours: float
    gpu_hours: float
    wait_mean_s: float | None
    jct_mean_s: float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a simulation, as ``--output json`` prints them.

    JCT: from submission to end, wait: to the first start, both of finished jobs; these and the
    makespan are None if none finished. Utilisations are parts of 1, from the first submission on.
    ``stopped``: why the simulation ended before all jobs did. ``fairness_jain``,
    ``deserved_distance``: see ``fairness``. ``data_fetched_gb``: what caches of nodes read from
    origins, in 10^9 bytes, ``data_wait_mean_s``: from the bind of a task to its data, both None
    without data sets.
    """

    jobs: int
    finished: int
    unfinished: int
    can_never_start: int
    makespan_s: float | None
    jct_mean_s: float | None
    jct_p50_s: float | None
    jct_p95_s: float | None
    jct_p99_s: float | None
    wait_mean_s: float | None
    wait_p50_s: float | None
    wait_p95_s: float | None
    wait_p99_s: float | None
    cpu_utilisation: float
    memory_utilisation: float
    gpu_utilisation: float
    fragmentation: float
    fairness_jain: float | None
    deserved_distance: float | None
    evictions: int
    evicted_tasks: int
    sessions: int
    end_s: float
    stopped: str
    seed: int
    queues: list[QueueResult]
    unfinished_jobs: list[Unfinished]
    data_fetched_gb: float | None = None
    data_wait_mean_s: float | None = None


def summarize(simulated: kernel.Simulation, seed: int) -> Summary:
    """The summary of a simulation that has run."""
    measured = simulated.measured
    unfinished = [unfinished_job(*each) for each in simulated.unfinished()]
    makespan_us = max(0, measured.last_end_us - max(0, measured.first_submit_us))
    jct, wait = _statistics(measured.jcts_us), _statistics(measured.waits_us)
    fair = measured.fairness.means(simulated.now_us)
    cpu, memory, gpu = (
        _ratio(used, total)
        for used, total in zip(measured.used_integrals, measured.total_integrals, strict=True)
    )
    return Summary(
        jobs=measured.jobs,
        finished=len(measured.jcts_us),
        unfinished=len(unfinished),
        can_never_start=sum(each.can_never_start for each in unfinished),
        makespan_s=_seconds(makespan_us) if measured.jcts_us else None,
        jct_mean_s=jct[0],
        jct_p50_s=jct[1],
        jct_p95_s=jct[2],
        jct_p99_s=jct[3],
        wait_mean_s=wait[0],
        wait_p50_s=wait[1],
        wait_p95_s=wait[2],
        wait_p99_s=wait[3],
        cpu_utilisation=cpu,
        memory_utilisation=memory,
        gpu_utilisation=gpu,
        fragmentation=_ratio(measured.idle_on_used_integral, measured.idle_integral),
        fairness_jain=None if fair is None else round(fair[0], 9),
        deserved_distance=None if fair is None else round(fair[1], 9),
        evictions=measured.evictions,
        evicted_tasks=measured.evicted_tasks,
        sessions=simulated.scheduler.sessions,
        end_s=_seconds(simulated.now_us),
        stopped=simulated.stopped,
        seed=seed,
        queues=[
            _queue(name, meter, measured, simulated.now_us)
            for name, meter in sorted(measured.queues.items())
        ],
        unfinished_jobs=unfinished[:MOST_UNFINISHED],
        data_fetched_gb=simulated.caches.fetched_bytes / 10**9 if measured.data_waits else None,
        data_wait_mean_s=_seconds(measured.data_wait_us) / measured.data_waits
        if measured.data_waits
        else None,
    )


def job_result(run: job_runs.JobRun) -> JobResult:
    """The result of a job, finished or not."""
    start, end = run.first_start_us, run.end_us
    return JobResult(
        job=run.job.name,
        queue=run.job.queue,
        submit_s=_seconds(run.job.submit_us),
        start_s=None if start < 0 else _seconds(start),
        end_s=None if end < 0 else _seconds(end),
        wait_s=None if start < 0 else _seconds(start - run.job.submit_us),
        evictions=run.evictions,
        evicted_tasks=run.evicted_tasks,
        status=run.phase,
    )


def unfinished_job(run: job_runs.JobRun, tier: str, text: str) -> Unfinished:
    """A job that has not finished, with the scheduler's reason."""
    reason = text.strip() or ("it runs" if run.phase == "Running" else "not tried yet")
    return Unfinished(run.job.name, run.job.queue, run.phase, tier == "never-fits", reason)


def shown(value: object) -> str:
    """A number of a summary as tables and reports show it."""
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _queue(
    name: str, meter: measurements.QueueMeter, measured: measurements.Measurements, end_us: int
) -> QueueResult:
    hour = 3600 * workload.SECOND_US
    return QueueResult(
        queue=name,
        jobs=meter.jobs,
        finished=meter.finished,
        evictions=meter.evictions,
        share_mean=max(
            _ratio(used, total)
            for used, total in zip(meter.used_integrals, measured.total_integrals, strict=True)
        ),
        cpu_hours=round(meter.used_integrals[0] / 1000 / hour, 6),
        gpu_hours=round(meter.used_integrals[2] / hour, 6),
        wait_mean_s=_mean_s(meter.waits_us, meter.finished),
        jct_mean_s=_mean_s(meter.jct_us, meter.finished),
    )


def _statistics(values_us: Sequence[int]) -> tuple[float | None, ...]:
    """Mean, p50, p95 and p99 in seconds; percentiles are interpolated linearly. None for no value:
    a wait of 0 would be the best one."""
    if not len(values_us):
        return None, None, None, None
    quantiles: Sequence[float] = np.percentile(np.array(values_us), [50, 95, 99]).tolist()
    return _mean_s(sum(values_us), len(values_us)), *map(_seconds, quantiles)


def _mean_s(total_us: float, count: int) -> float | None:
    return _seconds(total_us / count) if count else None


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, 9) if whole else 0.0


def _seconds(time_us: float) -> float:
    return round(time_us / workload.SECOND_US, 6)
