"""Rules of the order by remaining service: the least mean completion time, and no starvation."""

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import sessions, virtual_cluster
from stromboli.scheduler.core import simulate
from stromboli.shared import keys
from stromboli.shared.api import core, meta
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

QUEUE = sessions.queue("q")
NAME = "shortest-remaining-service"
USUAL = [sessions.plugin(name) for name in ("gang", "predicates")]


def tiers(*more: str, **arguments: Any) -> list[sessions.Tier]:
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    return [[sessions.plugin(NAME, named), *map(sessions.plugin, more)], USUAL]


def run(
    jobs: Sequence[virtual_cluster.Job], nodes: int = 1, *more: str, **arguments: Any
) -> dict[str, int]:
    """When each job starts on nodes of 4 CPUs."""
    found = [builders.make_node(f"n{at}", cpu="4") for at in range(nodes)]
    return virtual_cluster.simulated(found, [QUEUE], jobs, tiers(*more, **arguments)).started


def order_of(*jobs: list[meta.Object], now_s: int = 0, **arguments: Any) -> list[str]:
    """The jobs in the order in which a session would serve them."""
    objects = [each for job in jobs for each in job]
    now = builders.NOON + timedelta(seconds=now_s)
    node = builders.make_node("n1", cpu="64")
    (tier, _) = tiers(**arguments)
    ssn = sessions.opened(node, QUEUE, *objects, tier=tier, now=now)
    return [job.name for job in ssn.ordered_jobs(ssn.jobs.values())]


def job(
    name: str,
    estimate: str = "",
    *,
    pods: int = 1,
    cpu: str = "1",
    began_s: int | None = None,
    created_s: int = 0,
) -> list[meta.Object]:
    """A job; with ``began_s`` its first pod runs since then."""
    group = builders.make_pod_group(
        name,
        pods,
        queue="q",
        phase="Inqueue",
        annotations={keys.RUNNING_ESTIMATE: estimate} if estimate else None,
        created=builders.NOON + timedelta(seconds=created_s),
        min_resources={"cpu": str(max(pods, 1) * int(cpu))},
    )
    members = [builders.make_pod(f"{name}-{at}", name, cpu=cpu, memory=None) for at in range(pods)]
    if began_s is not None:
        start = builders.NOON + timedelta(seconds=began_s)
        members[0] = msgspec.structs.replace(
            members[0],
            spec=msgspec.structs.replace(members[0].spec, node_name="n1"),
            status=core.PodStatus(phase="Running", start_time=start),
        )
    return [group, *members]


def test_what_counts_is_the_request_times_the_run_time() -> None:
    wide = job("wide", "10m", pods=8)
    long = job("long", "60m")
    large = job("large", "30m", cpu="4")
    assert order_of(wide, long, large) == ["long", "wide", "large"]


def test_a_running_task_needs_the_rest_of_its_run_time() -> None:
    """And one that is late for t, as long again."""
    soon = job("soon", "60m", pods=2, began_s=0)
    new = job("new", "55m", pods=2)
    late = job("late", "10m", pods=2, began_s=-70 * 60)
    assert order_of(soon, new, late, now_s=40 * 60) == ["soon", "late", "new"]


def test_a_job_without_a_run_time_counts_as_the_default() -> None:
    jobs = job("unknown"), job("short", "10m"), job("long", "2h")
    assert order_of(*jobs) == ["short", "long", "unknown"]
    assert order_of(*jobs, default_run_time="1h") == ["short", "unknown", "long"]


def test_a_job_that_is_not_admitted_counts_by_its_minimum_resources() -> None:
    waiting = job("waiting", "10m", pods=0, cpu="8")
    assert order_of(waiting, job("less", "60m"), job("more", "10m", cpu="9")) == [
        "less",
        "waiting",
        "more",
    ]


@pytest.mark.parametrize("wrong", ["soon", "0s", "-1h", 3, "1000000h"])
def test_a_wrong_argument_is_reported_and_replaced(wrong: Any) -> None:
    how = sessions.configured(*tiers(waits_at_most=wrong))
    ssn = simulate.run(how, sessions.given([builders.make_node("n1"), QUEUE]))
    (complaint,) = ssn.complaints
    assert complaint.startswith(f"plugin {NAME}: arguments.waits-at-most: {wrong!r} is not ")
    assert complaint.endswith("'24h' is used")


def test_a_large_job_waits_for_smaller_ones_no_longer_than_the_limit() -> None:
    """Without the limit it would wait as long as they arrive."""
    large = virtual_cluster.Job("large", 1, 4, 100)
    small = [virtual_cluster.Job(f"small-{at}", 1, 4, 10, at=8 * at) for at in range(40)]
    jobs = [virtual_cluster.Job("first", 1, 4, 5), large, *small]
    assert run(jobs)["large"] == 405
    assert run(jobs, waits_at_most="60s")["large"] == 65


def test_a_large_gang_starts_after_the_limit_if_nodes_are_reserved_for_it() -> None:
    """The order alone keeps no room: small jobs use each node that becomes free."""
    gang = virtual_cluster.Job("gang", 2, 4, 100, at=1)
    small = [virtual_cluster.Job(f"small-{at}", 1, 4, 10, at=5 * at) for at in range(40)]
    assert run([gang, *small], 2, waits_at_most="60s")["gang"] > 200
    assert run([gang, *small], 2, "reservation", waits_at_most="60s")["gang"] <= 75


# --- properties ------------------------------------------------------------------------------

RUN_TIMES = st.lists(st.integers(1, 50), min_size=1, max_size=6)
ARRIVALS = st.lists(
    st.tuples(st.integers(1, 50), st.integers(0, 100), st.booleans()), min_size=1, max_size=8
)


def completions(order: Sequence[int], nodes: int) -> int:
    """The sum of completion times if whole nodes are given to run times in this order."""
    free = [0] * nodes
    total = 0
    for seconds in order:
        at = free.index(min(free))
        free[at] += seconds
        total += free[at]
    return total


@depth.examples(40)
@given(RUN_TIMES, st.integers(1, 3))
def test_the_mean_completion_time_is_that_of_the_best_order(seconds: list[int], nodes: int) -> None:
    """Of jobs that take a whole node each and are there from the start, by brute force."""
    jobs = [virtual_cluster.Job(f"j{at}", 1, 4, each) for at, each in enumerate(seconds)]
    started = run(jobs, nodes)
    total = sum(started[each.name] + each.seconds for each in jobs)
    assert total == min(completions(each, nodes) for each in itertools.permutations(seconds))


@depth.examples(40)
@given(ARRIVALS, st.integers(1, 120))
def test_no_job_waits_much_longer_than_the_limit(
    jobs: list[tuple[int, int, bool]], limit_s: int
) -> None:
    """Then only the running job and those that were created no later are before it, whatever
    arrives."""
    made = [
        virtual_cluster.Job(f"j{at}", 1, 4, seconds, at=arrives, says=says)
        for at, (seconds, arrives, says) in enumerate(jobs)
    ]
    started = run(made, waits_at_most=f"{limit_s}s", default_run_time="30s")
    longest = max(each.seconds for each in made)
    for job in made:
        older = sum(each.seconds for each in made if each.at <= job.at and each is not job)
        assert started[job.name] <= job.at + limit_s + longest + older
