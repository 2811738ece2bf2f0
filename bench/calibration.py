"""Calibration of expected starts: ``python -m bench.calibration --data DIR philly``.

A workload runs in virtual time on a cluster that is loaded to ``--load``. At the submission of
sampled jobs, the state of the cluster is saved and a forecast is computed from it as in the
service: the same code, 20 draws, ends within 1 % share a session. Forecasts cover jobs that wait
for more than 60 s, and use only run times of jobs that had ended before the submission. Waits
beyond the horizon of 7 days have no range and are counted separately. Only jobs of the second half
are counted; the range of each is calibrated by the jobs of both halves that had started before its
submission, as in the service. ``--recompute FILE`` reads forecasts that ``--raw`` wrote, instead of
computing them.

Cases: ``philly`` (each of the virtual clusters of Microsoft's Philly trace on its own nodes, time
compressed to the load) and ``generator`` (users with programs of lognormal run times, bursts).

The baseline is a quantile regression of log wait on log queue position, fitted on all jobs that had
started at the submission and had waited for more than 60 s. The last line of stdout is one JSON
object; ``--raw FILE`` writes every forecast.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stromboli.embedded.simulation import inputs, run
from stromboli.embedded.simulation.core import job_runs, kernel, objects, workload
from stromboli.scheduler.core import plugins
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.forecast import (
    expected_starts,
    range_calibration,
    run_times,
)
from stromboli.scheduler.forecasting import worker
from stromboli.shared import decoding
from stromboli.shared.api import core

LEAST_WAIT_S = 60.0
DRAWS = 20
QUANTILES = (0.1, 0.5, 0.9)
LEAST_JOBS = 1000
LEAST_FITTED = 30
HORIZON_S = expected_starts.HORIZON.total_seconds()


class Sample(msgspec.Struct):
    """A submission: its queue position, and the data to forecast it."""

    run: job_runs.JobRun
    position: int
    present: cluster_objects.Cluster | None = None


class Forecast(msgspec.Struct, frozen=True):
    """A forecast and the actual wait, in seconds from the submission. ``baseline`` is empty in the
    first half, which is only used for calibration. ``calibrated``: the forecast with its range
    widened."""

    case: str
    submit_s: float
    wait_s: float
    position: int
    forecast: tuple[float, ...]
    baseline: tuple[float, ...]
    calibrated: tuple[float, ...] = ()


class Case(msgspec.Struct, frozen=True):
    """A workload on nodes. Jobs are in the order of their submission."""

    name: str
    nodes: tuple[workload.NodeGroup, ...]
    jobs: tuple[workload.Job, ...]


def letters(number: int) -> str:
    """The number as a name without digits, which the estimator would ignore."""
    text = ""
    while True:
        number, digit = divmod(number, 26)
        text += chr(ord("a") + digit)
        if not number:
            return text


def compressed(name: str, nodes: int, jobs: Sequence[workload.Job], load: float) -> Case:
    """The jobs on nodes of 8 GPUs, with submission times compressed so that the work of each half
    is ``load`` times the GPU time of the nodes. The order and the relative gaps within a half are
    preserved."""
    ordered = sorted(jobs, key=lambda each: each.submit_us)
    moved: list[workload.Job] = []
    begin_us = 0
    half = len(ordered) // 2
    for part in (ordered[:half], ordered[half:]):
        work = sum(each.duration_us * each.tasks * each.resources.gpus for each in part)
        long_us = work / (nodes * 8 * load)
        first, last = part[0].submit_us, part[-1].submit_us
        for each in part:
            at_us = begin_us + round((each.submit_us - first) / (last - first) * long_us)
            moved.append(msgspec.structs.replace(each, submit_us=at_us))
        begin_us += round(long_us)
    group = workload.NodeGroup("n", nodes, workload.Resources(gpus=8))
    return Case(name, (group,), tuple(moved))


def philly(folder: Path, load: float, most: int, later: int) -> Iterator[Case]:
    """The virtual clusters with at least ``LEAST_JOBS`` jobs, at most ``most`` jobs of each from
    the middle of the trace or ``later`` jobs after it, on a 32nd of their nodes, at least one."""
    path = folder / "philly-vc"
    found = inputs.read(path / "philly_vc_nodes.csv", path / "philly.csv")
    sizes = {each.metadata.name: int(each.spec.weight) for each in found.queues}
    by_queue: dict[str, list[workload.Job]] = {}
    for job in found.jobs:
        by_queue.setdefault(job.queue, []).append(job)
    for queue, jobs in sorted(by_queue.items()):
        if len(jobs) < LEAST_JOBS:
            continue
        first = min(max(0, (len(jobs) - most) // 2 + later), max(0, len(jobs) - most))
        nodes = max(1, sizes[queue] // 32)
        fitting = [each for each in jobs[first : first + most] if each.tasks <= nodes]
        named = [
            msgspec.structs.replace(each, name=f"{letters(at)}-x", queue="default")
            for at, each in enumerate(fitting)
        ]
        yield compressed(queue, nodes, named, load)


def generated(load: float, most: int, seed: int) -> Iterator[Case]:
    """20 users with 3 programs each on one node; a program has a lognormal run time (median 2
    minutes to 2 hours, sigma 0.6) and a size; users submit in bursts of 2 on average."""
    draw = np.random.default_rng(seed)
    programs = [
        (f"{letters(user)}-{letters(at)}", math.exp(draw.uniform(math.log(120), math.log(7200))),
         int(draw.choice([1, 1, 1, 2, 2, 4])))
        for user in range(20)
        for at in range(3)
    ]  # fmt: skip
    jobs: list[workload.Job] = []
    at_s = 0.0
    while len(jobs) < most:
        at_s += draw.exponential(600)
        program, median_s, gpus = programs[int(draw.integers(len(programs)))]
        for _ in range(int(draw.geometric(1 / 2))):
            at_s += draw.exponential(5)
            run_s = median_s * math.exp(0.6 * draw.standard_normal())
            jobs.append(
                workload.Job(
                    f"{program}-{len(jobs)}",
                    round(at_s * workload.SECOND_US),
                    round(run_s * workload.SECOND_US),
                    resources=workload.Resources(gpus=gpus),
                )
            )
    yield compressed(f"generator-{seed}", 1, jobs, load)


class Reservoir:
    """Reservoir sampling: every offered submission has the same probability."""

    def __init__(self, most: int, random: np.random.Generator) -> None:
        self.samples: list[Sample] = []
        self._most = most
        self._random = random
        self._seen = 0

    def offer(self, sample: Sample) -> bool:
        """Whether the submission is added to the sample; a later one may replace it."""
        self._seen += 1
        if len(self.samples) < self._most:
            self.samples.append(sample)
            return True
        at = int(self._random.integers(self._seen))
        if at >= self._most:
            return False
        self.samples[at] = sample
        return True


class Observed:
    """Runs a case, and saves the state of the cluster at sampled submissions of each half."""

    def __init__(self, case: Case, samples: int, seed: int) -> None:
        self.case = case
        self.waited: list[Sample] = []
        self.ended: list[job_runs.JobRun] = []
        self.half_us = case.jobs[len(case.jobs) // 2].submit_us
        random = np.random.default_rng(seed)
        self.first, self.second = Reservoir(samples, random), Reservoir(samples, random)
        scenario = workload.Scenario(case.nodes, case.jobs)
        self._simulation = kernel.Simulation(scenario, self._finished)
        self._nodes = tuple(
            objects.node(group, name) for group in case.nodes for name in group.names()
        )
        self._queues = tuple(objects.with_standard_queues([]))

    def run(self) -> None:
        """Simulate to the end."""
        before: set[str] = set()
        while self._simulation.step():
            now = self._simulation.runs.keys()
            for key in now - before:
                self._submitted(self._simulation.runs[key])
            before = set(now)

    def _finished(self, ended: job_runs.JobRun) -> None:
        self.ended.append(ended)

    def learned(self, at_us: int) -> run_times.RunTimeEstimator:
        """An estimator with the run times of jobs that had ended by a time."""
        run_time_estimator = run_times.RunTimeEstimator()
        for each in self.ended:
            if each.end_us <= at_us:
                run_time_estimator.add(_traits(each), each.job.duration_us / workload.SECOND_US)
        return run_time_estimator

    def positions(self, at_us: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Logarithms of queue position and wait of the jobs that had started by a time."""
        found = [
            (each.position, wait_s(each))
            for each in self.waited
            if 0 <= each.run.first_start_us <= at_us and wait_s(each) > LEAST_WAIT_S
        ]
        position, wait = np.array(found).reshape(-1, 2).T
        return np.log1p(position), np.log(wait)

    def _submitted(self, submitted: job_runs.JobRun) -> None:
        if submitted.first_start_us >= 0:
            return
        runs = self._simulation.runs.values()
        waiting = sum(each.first_start_us < 0 for each in runs) - 1
        self.waited.append(Sample(submitted, waiting))
        sample = Sample(submitted, waiting)
        half = self.first if submitted.job.submit_us < self.half_us else self.second
        if half.offer(sample):
            sample.present = self._present()

    def _present(self) -> cluster_objects.Cluster:
        runs = list(self._simulation.runs.values())
        pods = [_pod(task) for each in runs for task in each.tasks if task.pod is not None]
        return cluster_objects.Cluster(
            now=workload.datetime_at(self._simulation.now_us),
            nodes=self._nodes,
            queues=self._queues,
            pod_groups=tuple(each.group for each in runs if each.group is not None),
            pods=tuple(pods),
        )


def _pod(task: job_runs.TaskRun) -> core.Pod:
    assert task.pod is not None, "a job must be waiting"
    if task.state != "running":
        return task.pod
    status = msgspec.structs.replace(
        task.pod.status, start_time=workload.datetime_at(task.started_us)
    )
    pod: core.Pod = msgspec.structs.replace(task.pod, status=status)
    return pod


def _traits(job_run: job_runs.JobRun) -> run_times.JobTraits:
    return run_times.JobTraits("", job_run.job.name, job_run.job.queue, job_run.job.tasks)


def wait_s(sample: Sample) -> float:
    """Seconds from the submission to the first start."""
    return (sample.run.first_start_us - sample.run.job.submit_us) / workload.SECOND_US


def forecast(sample: Sample, learned: run_times.RunTimeEstimator) -> tuple[float, ...]:
    """The quantiles of the forecast for a sample."""
    assert sample.present is not None, "samples of a reservoir have it"
    options = expected_starts.Options(
        configured=workload.Options().configured,
        find=plugins.find,
        only=frozenset((sample.run.key,)),
        tolerance=worker.TOLERANCE,
    )
    parts = worker.stratified(DRAWS, len(sample.present.pod_groups))
    (start,) = expected_starts.expected_starts(sample.present, options, learned.draw, parts)
    return tuple(
        HORIZON_S if each is None else each for each in (start.p10_s, start.p50_s, start.p90_s)
    )


def quantile_regression(
    x: NDArray[np.float64], y: NDArray[np.float64], part: float
) -> NDArray[np.float64]:
    """Intercept and slope that minimise the pinball loss, by reweighted least squares."""
    design = np.column_stack((np.ones_like(x), x))
    found = np.linalg.lstsq(design, y, rcond=None)[0]
    for _ in range(200):
        rest = y - design @ found
        weight = np.where(rest > 0, part, 1 - part) / np.maximum(np.abs(rest), 1e-4)
        scaled = design * weight[:, None]
        found = np.linalg.solve(design.T @ scaled + 1e-9 * np.eye(2), scaled.T @ y)
    return np.asarray(found, dtype=np.float64)


def measured(
    case: Case, samples: int, cpu_s: float, seed: int = 1
) -> tuple[list[Forecast], dict[str, Any]]:
    """Forecasts of a case in random order, until ``cpu_s`` CPU seconds are used, and the case's
    data. A third of the time is used for the first half."""
    observed = Observed(case, samples, seed)
    observed.run()
    facts: dict[str, Any] = {"case": case.name, "jobs": len(case.jobs)}
    found: list[Forecast] = []
    began_s = time.process_time()
    for name, half, part in (
        ("calibrating", observed.first, 1 / 3),
        ("samples", observed.second, 1),
    ):
        late = [each for each in half.samples if wait_s(each) > LEAST_WAIT_S]
        np.random.default_rng(seed).shuffle(late)
        before = len(found)
        for each in late:
            if time.process_time() - began_s > cpu_s * part:
                break
            at_us = each.run.job.submit_us
            is_counted = half is observed.second
            baseline = _baseline(observed, each) if is_counted else ()
            if baseline is not None:
                quantiles = forecast(each, observed.learned(at_us))
                at_s, waited_s = at_us / workload.SECOND_US, wait_s(each)
                found.append(
                    Forecast(case.name, at_s, waited_s, each.position, quantiles, baseline)
                )
        facts[name] = len(found) - before
    facts["forecast_cpu_s"] = round((time.process_time() - began_s) / max(1, len(found)), 3)
    return found, facts


def _baseline(observed: Observed, sample: Sample) -> tuple[float, ...] | None:
    """Quantiles by the regression on the position; None if too few jobs had started."""
    x, y = observed.positions(sample.run.job.submit_us)
    if len(x) < LEAST_FITTED:
        return None
    place = np.array([1.0, math.log1p(sample.position)])
    lines = [quantile_regression(x, y, part) for part in QUANTILES]
    return tuple(sorted(min(float(np.exp(place @ line)), HORIZON_S) for line in lines))


def calibrated(every: Sequence[Forecast]) -> list[Forecast]:
    """The counted forecasts with widened ranges: those of a case in the order of submissions, each
    after the starts that were known then."""
    found: list[Forecast] = []
    for case in sorted({each.case for each in every}):
        mine = sorted((it for it in every if it.case == case), key=lambda it: it.submit_s)
        steps = [(each.submit_s, 1, at) for at, each in enumerate(mine)]
        steps += [(each.submit_s + each.wait_s, 0, at) for at, each in enumerate(mine)]
        calibrator = range_calibration.RangeCalibrator()
        for at_s, is_submission, at in sorted(steps):
            each, now = mine[at], workload.datetime_at(round(at_s * workload.SECOND_US))
            if not is_submission:
                calibrator.started(str(at), now)
                continue
            low, median, high = (None if it >= HORIZON_S else it for it in each.forecast)
            start = expected_starts.ExpectedStart(str(at), "", "starts", low, median, high, "")
            shown = calibrator.widening.applied(start, HORIZON_S)
            calibrator.forecast(now, start)
            if each.baseline:
                quantiles = (shown.p10_s, shown.p50_s, shown.p90_s)
                values = tuple(HORIZON_S if it is None else it for it in quantiles)
                found.append(msgspec.structs.replace(each, calibrated=values))
    return found


def scores(wait: NDArray[np.float64], quantiles: NDArray[np.float64]) -> dict[str, float]:
    """Coverage of the range, its width, interval score (alpha 0.2) and mean pinball loss."""
    low, high = quantiles[:, 0], quantiles[:, 2]
    outside = np.maximum(low - wait, 0) + np.maximum(wait - high, 0)
    rest = wait[:, None] - quantiles
    parts = np.array(QUANTILES)
    pinball = np.maximum(parts * rest, (parts - 1) * rest).mean()
    return {
        "coverage": round(float(((low <= wait) & (wait <= high)).mean()), 3),
        "below": round(float((wait < low).mean()), 3),
        "above": round(float((wait > high).mean()), 3),
        "width_median_s": round(float(np.median(high - low)), 1),
        "interval_score_s": round(float((high - low + 10 * outside).mean()), 1),
        "pinball_s": round(float(pinball), 1),
    }


def summary(forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """Scores of the forecasts and of the baseline, and by decile of the wait."""
    every = calibrated(forecasts)
    found = [each for each in every if each.wait_s <= HORIZON_S]
    beyond = [each for each in every if each.wait_s > HORIZON_S]
    wait = np.array([each.wait_s for each in found])
    simulated = np.array([each.forecast for each in found])
    ours = np.array([each.calibrated for each in found])
    theirs = np.array([each.baseline for each in found])
    deciles = []
    for part in np.array_split(np.argsort(wait), 10):
        one = scores(wait[part], ours[part])
        deciles.append({"wait_median_s": round(float(np.median(wait[part])), 1), **one})
    return {
        "samples": len(found),
        "beyond_horizon": len(beyond),
        "of_these_not_within_7_days": sum(it.forecast[1] >= HORIZON_S for it in beyond),
        "calibrated": scores(wait, ours),
        "simulated": scores(wait, simulated),
        "position": scores(wait, theirs),
        "deciles": deciles,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=("philly", "generator"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--jobs", type=int, default=500, help="maximum per cluster")
    parser.add_argument("--samples", type=int, default=150, help="maximum per cluster")
    parser.add_argument("--seeds", type=int, default=2, help="number of seeds of the generator")
    parser.add_argument("--first-seed", type=int, default=0, help="first seed of the generator")
    parser.add_argument("--later", type=int, default=0, help="start this many Philly jobs later")
    parser.add_argument(
        "--cpu-s", type=float, default=60.0, help="CPU time for forecasts, per cluster"
    )
    parser.add_argument("--raw", type=Path)
    parser.add_argument("--recompute", type=Path)
    given = parser.parse_args()
    if given.recompute is not None:
        lines = given.recompute.read_bytes().splitlines()
        read = [decoding.from_json(line, Forecast) for line in lines]
        print(json.dumps({"case": given.case, "load": given.load, **summary(read)}))
        return
    if given.case == "philly":
        cases: Iterator[Case] = philly(given.data, given.load, given.jobs, given.later)
    else:
        seeds = range(given.first_seed, given.first_seed + given.seeds)
        cases = (each for seed in seeds for each in generated(given.load, given.jobs, seed))
    every: list[Forecast] = []
    facts = []
    for case in cases:
        with run.rare_collections():
            found, fact = measured(case, given.samples, given.cpu_s)
        every += found
        if given.raw is not None:
            given.raw.write_bytes(b"\n".join(map(msgspec.json.encode, every)) + b"\n")
        facts.append(fact)
        print(json.dumps(fact), flush=True)
    result = {"case": given.case, "load": given.load, "clusters": facts, **summary(every)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
