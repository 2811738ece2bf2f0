"""CPU seconds of simulations: ``python -m bench.simulate --data DIR philly``.

Cases from published traces: ``philly`` (82,247 GPU jobs of Microsoft's Philly trace on
352 nodes, 11 queues), ``baseline`` and ``large-scale`` (15,000 and 50,000 workloads of Kueue's
performance scenarios in 30 and 1,000 queues with cohorts, priorities, preemption and reclaim), and
``synthetic``, which needs no files: ``--jobs`` jobs on ``--nodes`` nodes in the built-in
configuration, with sessions 1 s apart unless ``--session-interval`` says otherwise.

CPU seconds are those of the simulation without reading files. The last line of stdout is one JSON
object; stderr shows the progress.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from stromboli.embedded.simulation import inputs, run
from stromboli.embedded.simulation.core import kernel, results, workload
from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.config import config_reader
from stromboli.shared.api import meta, scheduling

MS_US = 1000
SURGE, SURGE_LOAD = (0.4, 0.48), 1.3
"""The part of the jobs of ``synthetic`` that arrive faster, and their load: at the end of it about
a job for each node is pending if 100 jobs arrive for each node."""
PROGRESS_S = 60
KUEUE: dict[str, Any] = {
    "actions": "enqueue, allocate, preempt, reclaim",
    "tiers": [
        {
            "plugins": [
                {"name": "priority"},
                {"name": "gang"},
                {"name": "capacity", "enableHierarchy": True},
                {"name": "predicates"},
            ]
        }
    ],
}
"""Kueue's preemption: a lower priority in the queue, and any workload that borrows quota."""


def philly(folder: Path, most: int) -> inputs.Inputs:
    """The trace of the folder ``philly-vc``."""
    found = inputs.read(
        folder / "philly-vc" / "philly_vc_nodes.csv", folder / "philly-vc" / "philly.csv"
    )
    return inputs.Inputs(found.nodes, found.jobs[:most], found.queues)


def kueue(folder: Path, name: str, most: int) -> inputs.Inputs:
    """A scenario of the folder ``kueue-perf``: its quota as one node per cohort."""
    path = folder / "kueue-perf" / name / "generator.yaml"
    jobs: list[workload.Job] = []
    queues: list[scheduling.Queue] = []
    total = 0
    for cohorts in yaml.safe_load(path.read_text())["cohorts"]:
        for cohort in range(cohorts["count"]):
            parent = f"{cohorts['className']}-{cohort}"
            children = [
                (f"{parent}-{sets['className']}-{at}", sets)
                for sets in cohorts["queuesSets"]
                for at in range(sets["count"])
            ]
            quota = sum(int(sets["nominalQuota"]) for _, sets in children)
            total += quota
            queues.append(_queue(parent, "root", quota, quota))
            for queue, sets in children:
                nominal = int(sets["nominalQuota"])
                most_used = nominal + int(sets["borrowingLimit"])
                queues.append(_queue(queue, parent, nominal, most_used))
                jobs += _kueue_jobs(queue, sets)
    jobs.sort(key=lambda job: job.submit_us)
    node = workload.NodeGroup("quota", 1, workload.Resources(total * 1000), pods=10**6)
    return inputs.Inputs((node,), tuple(jobs[:most]), tuple(queues))


def _kueue_jobs(queue: str, sets: dict[str, Any]) -> Iterator[workload.Job]:
    for group in sets["workloadsSets"]:
        for kind in group["workloads"]:
            for number in range(group["count"]):
                yield workload.Job(
                    f"{queue}-{kind['className']}-{number}",
                    number * group["creationIntervalMs"] * MS_US,
                    kind["runtimeMs"] * MS_US,
                    resources=workload.Resources(int(kind["request"]) * 1000),
                    queue=queue,
                    priority=kind["priority"],
                )


def _queue(name: str, parent: str, deserved: int, most: int) -> scheduling.Queue:
    return scheduling.Queue(
        metadata=meta.ObjectMeta(name=name),
        spec=scheduling.QueueSpec(
            parent=parent, deserved={"cpu": deserved}, capability={"cpu": most}, reclaimable=True
        ),
    )


def synthetic(jobs: int, nodes: int, load: float, interval_us: int) -> workload.Scenario:
    """One-task jobs whose arrivals are generated on the fly: 1 to 8 cores, 10 to 1,000 s, 16
    queues."""
    cores = 32
    mean_work = 4.5 * 505.0
    whole_us = workload.SECOND_US * mean_work / (nodes * cores)
    surge = range(round(jobs * SURGE[0]), round(jobs * SURGE[1]))

    def arrivals() -> Iterator[workload.Job]:
        draw = np.random.default_rng(1)
        at_us = 0
        for number in range(jobs):
            at_us += round(
                draw.exponential() * whole_us / (SURGE_LOAD if number in surge else load)
            )
            yield workload.Job(
                f"j{number}",
                at_us,
                int(draw.integers(10, 1001)) * workload.SECOND_US,
                resources=workload.Resources(int(draw.integers(1, 9)) * 1000, 2**30),
                queue=f"q{draw.integers(16)}",
            )

    group = workload.NodeGroup("n", nodes, workload.Resources(cores * 1000, 256 * 2**30))
    options = workload.Options(interval_us=interval_us)
    return workload.Scenario((group,), arrivals(), options=options)


def simulate(simulated: kernel.Simulation) -> int:
    """Run to the end; returns how many jobs were pending at most."""
    peak, shown_s = 0, time.process_time()
    while simulated.step():
        peak = max(peak, round(simulated.measured.waiting.value))
        if time.process_time() - shown_s >= PROGRESS_S:
            shown_s = time.process_time()
            print(
                f"CPU {shown_s:.0f} s: {simulated.measured.jobs} jobs submitted, "
                f"{len(simulated.measured.jcts_us)} finished, "
                f"{simulated.measured.waiting.value:.0f} pending, "
                f"{simulated.scheduler.sessions} sessions, "
                f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB",
                file=sys.stderr,
                flush=True,
            )
    simulated.run()
    return peak


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=("philly", "baseline", "large-scale", "synthetic"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--jobs", type=int, default=10**9, help="use at most this number of jobs")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--session-interval", type=float, help="1 for synthetic, else 0")
    given = parser.parse_args()
    interval_s = given.session_interval
    if interval_s is None:
        interval_s = 1.0 if given.case == "synthetic" else 0.0
    interval_us = round(interval_s * workload.SECOND_US)
    if given.case == "synthetic":
        scenario = synthetic(given.jobs, given.nodes, given.load, interval_us)
    else:
        if given.case == "philly":
            found, configured = philly(given.data, given.jobs), workload.Options().configured
        else:
            found = kueue(given.data, given.case, given.jobs)
            configured = config_reader.read_configuration(KUEUE, actions.NAMES, plugins.NAMES)
        options = workload.Options(configured=configured, interval_us=interval_us)
        scenario = workload.Scenario(found.nodes, found.jobs, found.queues, (), options)
    simulated = kernel.Simulation(scenario)
    began = time.process_time()
    with run.rare_collections():
        peak = simulate(simulated)
    seconds = time.process_time() - began
    summary = results.summarize(simulated, 0)
    shown = {
        name: getattr(summary, name)
        for name in summary.__struct_fields__
        if name not in ("queues", "unfinished_jobs")
    }
    print(
        json.dumps(
            {
                "case": given.case,
                "cpu_seconds": round(seconds, 1),
                "cpu_ms_per_job": round(seconds / max(1, summary.jobs) * 1000, 3),
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "peak_pending": peak,
                **shown,
            }
        )
    )


if __name__ == "__main__":
    main()
