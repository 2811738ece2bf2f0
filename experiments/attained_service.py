"""Least attained service: the orders by age, dominant share, remaining and attained service.

``EXPERIMENT``: a generated load. ``PHILLY``: five samples of every 124th job of a virtual cluster
of Microsoft's Philly trace (``philly_extract.csv``; Jeon et al., USENIX ATC 2019, CC-BY-4.0,
https://github.com/msr-fiddle/philly-traces), with arrivals compressed so that GPUs are scarce. A
seed is a draw, or one of the five samples.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from experiments import shortest_first, support
from stromboli.embedded.simulation.core import workload

TEXT = """
actions: "enqueue, allocate, {evicts}backfill"
tiers:
- plugins: [{order}{{name: gang, enablePreemptable: false}}]
- plugins: [{{name: predicates}}, {{name: nodeorder}}, {{name: binpack}}]
"""
NEVER = "10000h"
DRF = "{name: drf, enablePreemptable: false}, "
REMAINING = f"{{name: shortest-remaining-service, arguments: {{waits-at-most: {NEVER}}}}}, "
ATTAINED = '{name: least-attained-service, arguments: {thresholds: "1h, 10h", waits-at-most: %s}}, '
EVICTS = "preempt, "
GPUS, LOAD = 16, 3.0
"""GPUs of the cluster for the trace, and the arriving work as a multiple of what they can do."""
JOBS = 80
TRACE = Path(__file__).with_name("philly_extract.csv")


def generated(seed: int) -> Mapping[str, workload.Scenario]:
    """Jobs of very different sizes, as in ``shortest_first``."""
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.exponential(60, JOBS))
    sizes = random.choice(shortest_first.SIZES, JOBS, p=shortest_first.PARTS)
    run_s = random.lognormal(np.log(900), 1.5, JOBS)
    jobs = [
        support.job(f"job-{at}", float(arrivals[at]), float(run_s[at]), gpus=int(sizes[at]))
        for at in range(JOBS)
    ]
    return _variants(support.nodes(6, gpus=8), jobs)


def philly(seed: int) -> Mapping[str, workload.Scenario]:
    """One sample of the trace."""
    with TRACE.open(newline="") as file:
        rows = [
            (int(row["submit_s"]), int(row["duration_s"]), int(row["gpus"]))
            for row in csv.DictReader(file)
            if int(row["part"]) == seed % 5
        ]
    work = sum(duration_s * gpus for _, duration_s, gpus in rows)
    compressed = work / (LOAD * GPUS) / max(submit_s for submit_s, _, _ in rows)
    jobs = [
        support.job(
            f"job-{at}",
            submit_s * compressed,
            duration_s,
            tasks=-(-gpus // 8),
            gpus=gpus // -(-gpus // 8),
        )
        for at, (submit_s, duration_s, gpus) in enumerate(rows)
    ]
    return _variants(support.nodes(GPUS // 8, gpus=8), jobs)


def _variants(
    cluster: tuple[workload.NodeGroup, ...], jobs: Sequence[workload.Job]
) -> Mapping[str, workload.Scenario]:
    known = [msgspec.structs.replace(job, estimate_us=job.duration_us) for job in jobs]

    def scenario(
        order: str, given: Sequence[workload.Job] = jobs, evicts: str = "", *, keeps: bool = False
    ) -> workload.Scenario:
        text = TEXT.format(order=order, evicts=evicts)
        return support.scenario(cluster, list(given), text, keeps_progress=keeps)

    return {
        "by arrival": scenario(""),
        "DRF": scenario(DRF),
        "remaining service, run times known": scenario(REMAINING, known),
        "attained service, with checkpoints": scenario(ATTAINED % NEVER, jobs, EVICTS, keeps=True),
        "the same, waits at most 24 h": scenario(ATTAINED % "24h", jobs, EVICTS, keeps=True),
        "attained service, work lost, 24 h": scenario(ATTAINED % "24h", jobs, EVICTS),
    }


def _jct(percent: int) -> support.Measure:
    return lambda ran: float(np.percentile(list(ran.jcts_s.values()), percent))


MEASURES: Mapping[str, support.Measure] = {
    "mean JCT, s": lambda ran: support.mean(ran.jcts_s),
    "p50, s": _jct(50),
    "p95, s": _jct(95),
    "p99, s": _jct(99),
    "evictions": lambda ran: float(ran.summary.evictions),
}
EXPERIMENT = support.Experiment("attained_service", generated, MEASURES)
PHILLY = support.Experiment("attained_service_philly", philly, MEASURES)
