"""Properties of every simulation: capacity, run times, sums, liveness, and equality with FIFO."""

import heapq
import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.tests import simulations
from embedded.tests.simulations import Simulated, job
from stromboli.embedded.simulation.core import job_runs, kernel, workload
from stromboli.testkit.strategies import depth

FIFO = simulations.configured("enqueue, allocate", ("priority", "gang", "predicates"))
EVICTING = simulations.configured(
    "enqueue, allocate, preempt, reclaim, backfill",
    ("priority", "gang", "predicates", "proportion"),
)
CONFIGURATIONS = (workload.Options().configured, EVICTING)
NODES, CORES = 3, 4

jobs_of_any_shape = st.lists(
    st.builds(
        lambda at, submit, duration, tasks, gang, cpu, queue, priority: job(
            f"j{at}", submit, duration, tasks, min(tasks, gang), cpu, queue, priority
        ),
        st.integers(0, 10**6),
        st.integers(0, 20),
        st.integers(0, 15),
        st.integers(1, 4),
        st.integers(1, 4),
        st.integers(1, 3),
        st.sampled_from(["a", "b"]),
        st.sampled_from([0, 5]),
    ),
    max_size=8,
    unique_by=lambda each: each.name,
)


@depth.examples(40)
@given(
    jobs_of_any_shape,
    st.sampled_from(CONFIGURATIONS),
    st.booleans(),
    st.sampled_from([0, 3 * simulations.SECOND]),
)
def test_usage_is_conserved_and_every_job_that_fits_finishes(
    jobs: list[workload.Job],
    configured: object,
    keeps: bool,
    interval_us: int,
) -> None:
    """A gang that fits on no empty cluster waits with a reason. It may hold the admission of its
    queue, so liveness is promised where all gangs fit."""
    options = msgspec.structs.replace(
        workload.Options(),
        configured=configured,
        keeps_progress=keeps,
        interval_us=interval_us,
        until_us=10**5 * simulations.SECOND,
    )
    finished: list[job_runs.JobRun] = []
    ordered = sorted(jobs, key=lambda each: each.submit_us)
    cluster = simulations.nodes(NODES, CORES)
    simulated = kernel.Simulation(
        workload.Scenario(cluster, ordered, options=options), finished.append
    )
    while simulated.step():
        check_capacity(simulated)
    simulated.run()
    for run in finished:
        check_run_time(run, keeps=keeps)
    if all(map(fits, jobs)):
        assert {run.job.name for run in finished} == {each.name for each in jobs}
    used = sum(
        run.task_us * run.job.resources.cpu_milli for run in [*finished, *simulated.runs.values()]
    )
    assert simulated.measured.used_integrals[0] == used
    for _, tier, reason in simulated.unfinished():
        assert reason
        assert tier


def fits(each: workload.Job) -> bool:
    """Whether the gang fits on the empty cluster."""
    per_node = CORES * 1000 // each.resources.cpu_milli
    return each.min_available <= per_node * NODES


def check_capacity(simulated: kernel.Simulation) -> None:
    measured = simulated.measured
    for name in measured.nodes:
        used, capacity = measured.used_on(name), measured.capacity_of(name)
        assert all(0 <= amount <= most for amount, most in zip(used, capacity, strict=True))
    idle = simulated.scheduler.cache.model.nodes.idle
    assert idle.min() >= 0


def check_run_time(run: job_runs.JobRun, *, keeps: bool) -> None:
    """A gang without evictions runs for exactly its duration, and so does its last attempt."""
    needed = run.job.tasks * run.job.duration_us
    assert run.task_us == needed if keeps or not run.evictions else run.task_us >= needed
    if not run.evictions and run.job.min_available == run.job.tasks:
        assert run.end_us - run.first_start_us == run.job.duration_us


def greedy_fifo(jobs: Sequence[workload.Job], cores: int) -> dict[str, float]:
    """Ends of rigid gangs on one pool of cores: at each arrival and each end, in the order of
    submission, every job starts that fits."""
    ends: dict[str, float] = {}
    waiting = list(jobs)
    running: list[tuple[int, int]] = []
    times = sorted({each.submit_us for each in jobs})
    while times:
        now = heapq.heappop(times)
        while running and running[0][0] <= now:
            cores += heapq.heappop(running)[1]
        for each in list(waiting):
            if each.submit_us <= now and each.tasks <= cores:
                waiting.remove(each)
                cores -= each.tasks
                heapq.heappush(running, (now + each.duration_us, each.tasks))
                heapq.heappush(times, now + each.duration_us)
                ends[each.name] = (now + each.duration_us) / simulations.SECOND
    return ends


@pytest.mark.parametrize("block", range(10))
def test_a_single_queue_equals_a_brute_force_simulation(block: int) -> None:
    """1,000 random instances of rigid gangs; those of one task have the closed form of a queue with
    many servers."""
    for instance in range(100):
        draw = random.Random(block * 100 + instance)
        cores = draw.randint(1, 4)
        largest = draw.choice([1, cores])
        jobs = [
            job(
                f"j{at:02}",
                draw.randint(0, 12),
                draw.randint(1, 9),
                draw.randint(1, largest),
            )
            for at in range(draw.randint(1, 8))
        ]
        jobs.sort(key=lambda each: each.submit_us)
        options = msgspec.structs.replace(workload.Options(), configured=FIFO)
        found = Simulated(simulations.nodes(cores), jobs, options).ends_s
        assert found == greedy_fifo(jobs, cores), f"instance {block * 100 + instance}"
        if largest == 1:
            assert found == closed_form(jobs, cores)


def closed_form(jobs: Sequence[workload.Job], servers: int) -> dict[str, float]:
    """Ends in a FIFO queue with equal servers: each job starts on the server that is free first."""
    free = [0] * servers
    ends = {}
    for each in jobs:
        end = max(heapq.heappop(free), each.submit_us) + each.duration_us
        heapq.heappush(free, end)
        ends[each.name] = end / simulations.SECOND
    return ends
