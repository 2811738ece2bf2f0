"""How late reserved jobs start if stated run times are wrong.

``python -m bench.reservation_delays``. Each case is a simulation of 4 nodes of 4 cores. Gangs of 1
to 8 cores arrive in the 10 minutes before an advance reservation of 2 nodes for a queue; they state
run times of 30 to 600 s (lognormal, median 150 s) as ``runningEstimate``, and request about 1.3
times the work that the nodes can do. They run for the stated time, multiplied by a factor that is
drawn log-uniformly. The job of the reservation needs both nodes, and was submitted before. Its
delay is from the start of the period to its start. The last line of stdout is one JSON object.
"""

import argparse
import json
import math
import random
from collections.abc import Iterator
from typing import Any

from stromboli.embedded.simulation.core import job_runs, kernel, workload
from stromboli.shared.api import meta, reservation

NODES, CORES = 4, 4
BEGIN_S, PERIOD_S = 600, 3600
LOAD = 1.3
SETTINGS = (
    ("wrong", 0.5, 2.0, reservation.LEAVE),
    ("upper bounds", 0.5, 1.0, reservation.LEAVE),
    ("wrong", 0.5, 2.0, reservation.EVICT),
)
"""Name, smallest and largest factor, and what happens to running pods at the start."""


def jobs(draw: random.Random, least: float, most: float) -> Iterator[workload.Job]:
    """The job of the reservation, and the others, in the order of their submission."""
    node = workload.Resources(CORES * 1000)
    yield workload.Job(
        "reserved", 0, 60 * workload.SECOND_US, 2, 2, node, "course", reservation="r"
    )
    at_s, number = 0.0, 0
    while at_s < BEGIN_S:
        stated_s = min(600.0, max(30.0, draw.lognormvariate(math.log(150), 0.7)))
        tasks = draw.choice((1, 2, 4, 8))
        runs_s = stated_s * math.exp(draw.uniform(math.log(least), math.log(most)))
        yield workload.Job(
            f"j{number}",
            round(at_s * workload.SECOND_US),
            round(runs_s * workload.SECOND_US),
            tasks,
            tasks,
            workload.Resources(1000),
            estimate_us=round(stated_s * workload.SECOND_US),
        )
        at_s += draw.expovariate(1.0) * tasks * stated_s / (LOAD * NODES * CORES)
        number += 1


def delay_s(seed: int, least: float, most: float, at_start: str) -> float:
    """The delay of the reserved job in one case."""
    spec = reservation.AdvanceReservationSpec(
        start_time=workload.datetime_at(BEGIN_S * workload.SECOND_US),
        duration=f"{PERIOD_S}s",
        node_names=("n-0", "n-1"),
        queues=("course",),
        at_start=at_start,
    )
    made = reservation.AdvanceReservation(metadata=meta.ObjectMeta(name="r"), spec=spec)
    cluster = (workload.NodeGroup("n", NODES, workload.Resources(CORES * 1000)),)
    starts_s: list[float] = []

    def ended(run: job_runs.JobRun) -> None:
        if run.job.reservation:
            starts_s.append(run.first_start_us / workload.SECOND_US)

    until_us = (BEGIN_S + PERIOD_S) * workload.SECOND_US
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    found = list(jobs(draw, least, most))
    simulated = kernel.Simulation(
        workload.Scenario(
            cluster, found, options=workload.Options(until_us=until_us), reservations=(made,)
        ),
        ended,
    )
    while not starts_s and simulated.step():
        pass
    return starts_s[0] - BEGIN_S if starts_s else math.inf


def summary(delays_s: list[float]) -> dict[str, Any]:
    """Numbers of one setting."""
    delays_s = sorted(delays_s)
    late = [each for each in delays_s if each > 0]
    return {
        "cases": len(delays_s),
        "late": len(late),
        "late_median_s": late[len(late) // 2] if late else 0.0,
        "p95_s": delays_s[len(delays_s) * 95 // 100],
        "most_s": delays_s[-1],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="number of cases of each setting")
    cases = parser.parse_args().cases
    found = []
    for name, least, most, at_start in SETTINGS:
        delays_s = [delay_s(seed, least, most, at_start) for seed in range(cases)]
        found.append(
            {"run_times": name, "factors": [least, most], "at_start": at_start, **summary(delays_s)}
        )
        print(found[-1], flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
