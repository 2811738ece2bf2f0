"""Fair share of the users of a queue, which borrows the other half of the cluster for a time.

``ann`` fills the queue ``research`` with jobs; ``bob`` comes half an hour later and ``eve`` an hour
later, with fewer. After three hours the queue ``production`` comes, which has the same weight, and
reclaims its half.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from experiments import support
from stromboli.embedded.simulation.core import workload
from stromboli.shared import keys

TEXT = """
actions: "enqueue, allocate, backfill, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: queue-policy}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""
NODES, CORES, CPU = 3, 8, 2
"""Nodes, their cores, and those of a job."""
BEGINS_S = {"ann": 0.0, "bob": 1800.0, "eve": 3600.0}
JOBS = {"ann": 45, "bob": 18, "eve": 18}
PRODUCTION_S, PRODUCTION_JOBS = 3 * 3600.0, 18
COMPARED_S = np.arange(3600.0, 9000.0, 60.0)
"""Times at which shares are compared: all three users have jobs that wait."""


POINTS = 240
"""Points of the chart."""
Times = npt.NDArray[np.float64]
Parts = npt.NDArray[np.float64]


def scenarios(seed: int) -> Mapping[str, workload.Scenario]:
    """By age; by current usage; by past usage, too; and with a user who deserves double."""
    random = np.random.default_rng(seed)

    def jobs_of(name: str, count: int, begin_s: float, queue: str) -> list[workload.Job]:
        return [
            support.job(
                f"{name}-{at}",
                begin_s + float(random.uniform(0, 60)),
                float(random.lognormal(np.log(1800), 0.5)),
                cpu=CPU,
                queue=queue,
                user=name,
            )
            for at in range(count)
        ]

    jobs = [
        job
        for user, begin_s in BEGINS_S.items()
        for job in jobs_of(user, JOBS[user], begin_s, "research")
    ]
    jobs += jobs_of("production", PRODUCTION_JOBS, PRODUCTION_S, "production")
    cluster = support.nodes(NODES, cpu=CORES)
    by_user = {keys.QUEUE_POLICY: "fair-share", keys.SHARE_BY: "user"}
    rules: dict[str, dict[str, str]] = {
        "by age": {keys.QUEUE_POLICY: "fifo"},
        "by usage now": {**by_user, keys.SHARE_HALF_LIFE: "0s"},
        "by usage now and before": {**by_user, keys.SHARE_HALF_LIFE: "1h"},
        "eve has weight 2": {**by_user, keys.SHARE_HALF_LIFE: "0s", keys.SHARE_WEIGHTS: "eve=2"},
    }
    return {
        name: support.scenario(
            cluster,
            jobs,
            TEXT,
            support.queue("research", rule, weight=1),
            support.queue("production", weight=1),
        )
        for name, rule in rules.items()
    }


def held(ran: support.Ran, name: str, times_s: Times) -> Parts:
    """The part of the cluster that the jobs of this name hold at each of these times."""
    spans = [
        span for job, found in ran.spans_s.items() if job.startswith(f"{name}-") for span in found
    ]
    starts, ends = (np.sort(np.array(each)) for each in zip(*spans, strict=True))
    running = np.searchsorted(starts, times_s, "right") - np.searchsorted(ends, times_s, "right")
    return running * CPU / (NODES * CORES)


def parts(ran: support.Ran) -> dict[str, Parts]:
    """User -> its part of what all users hold at the times of comparison."""
    found = {user: held(ran, user, COMPARED_S) for user in BEGINS_S}
    total = sum(found.values())
    return {user: each / total for user, each in found.items()}


def distance(ran: support.Ran) -> float:
    """The part of what the users hold that would have to change its user for equal shares."""
    apart = sum(np.abs(each - 1 / len(BEGINS_S)) for each in parts(ran).values())
    return float(np.mean(apart)) / 2


def shares(scenario: workload.Scenario) -> support.Shares:
    """The shares of the users and of the other queue."""
    ran = support.simulate(scenario)
    end_s = ran.summary.makespan_s or 0.0
    times_s = np.linspace(0, end_s, POINTS)
    names = (*BEGINS_S, "production")
    return {name: held(ran, name, times_s).tolist() for name in names}, end_s


EXPERIMENT = support.Experiment(
    "fair_users",
    scenarios,
    {
        "distance from equal shares": distance,
        "part of `eve`": lambda ran: float(np.mean(parts(ran)["eve"])),
        "mean wait of `ann`, s": lambda ran: support.mean(ran.waits_s, "ann"),
        "of `bob`, s": lambda ran: support.mean(ran.waits_s, "bob"),
        "of `eve`, s": lambda ran: support.mean(ran.waits_s, "eve"),
        "of `production`, s": lambda ran: support.mean(ran.waits_s, "production"),
        "evictions": lambda ran: ran.summary.evictions,
    },
    over_time=("by age", "by usage now"),
    shares=shares,
)
