"""Data sets in a simulation: their fetch delays progress, and caches follow the policy of nodes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.tests import simulations
from embedded.tests.simulations import SECOND, Simulated
from stromboli.cli.errors import CommandError
from stromboli.embedded.simulation import inputs
from stromboli.embedded.simulation.core import results, workload
from stromboli.scheduler.core.config import configuration
from stromboli.shared.api import batch
from stromboli.shared.jobspec import data_sets
from stromboli.testkit.strategies import depth

MB = 10**6
PLUGINS = ("priority", "gang", "predicates")
PLAIN = simulations.configured(plugin_names=PLUGINS)
AWARE = simulations.configured(plugin_names=(*PLUGINS, "data-locality"))


def nodes(count: int = 2, cache_mb: int = 1000, cpu: int = 1) -> tuple[workload.NodeGroup, ...]:
    """Nodes that fetch 10 MB a second."""
    (group,) = simulations.nodes(count, cpu)
    fields = {"cache_bytes": cache_mb * MB, "read_bytes_per_s": 10 * MB}
    return (msgspec.structs.replace(group, **fields),)


def job(
    name: str,
    *reads: str,
    submit_s: int = 0,
    size_mb: int = 100,
    tasks: int = 1,
    is_synchronous: bool = False,
    locality: str = "Preferred",
) -> workload.Job:
    """A job of 10 s that reads these data sets."""
    requests = tuple(
        data_sets.request_of(
            batch.DataSet(name=each, uri=f"s3://b/{each}", size=size_mb * MB, locality=locality)
        )
        for each in reads
    )
    made = simulations.job(name, submit_s, tasks=tasks)
    return msgspec.structs.replace(made, data_sets=requests, is_synchronous=is_synchronous)


def ran(
    cluster: tuple[workload.NodeGroup, ...],
    jobs: Sequence[workload.Job],
    configured: configuration.Configuration = AWARE,
    failures: Sequence[workload.NodeFailure] = (),
) -> Simulated:
    return Simulated(cluster, jobs, workload.Options(configured=configured), failures)


def summary(simulated: Simulated) -> results.Summary:
    return results.summarize(simulated.kernel, 0)


def test_a_task_makes_no_progress_before_its_data_is_on_its_node() -> None:
    simulated = ran(nodes(1), [job("a", "x"), job("plain")])
    assert simulated.ends_s == {"a": 20, "plain": 30}
    assert (summary(simulated).data_fetched_gb, summary(simulated).data_wait_mean_s) == (0.1, 10)


def test_data_sets_of_one_task_are_fetched_one_after_another() -> None:
    assert ran(nodes(1), [job("a", "x", "y")]).ends_s == {"a": 30}


def test_a_second_job_uses_the_copy_of_the_first() -> None:
    simulated = ran(nodes(1), [job("a", "x"), job("b", "x")])
    assert simulated.ends_s == {"a": 20, "b": 30}
    assert summary(simulated).data_fetched_gb == 0.1


def test_with_the_plugin_a_job_goes_to_the_node_that_has_its_data() -> None:
    """Without it, b runs on the first free node and fetches again."""
    first, second = job("a", "x"), job("b", "y", submit_s=1)
    later = [job("c", "y", submit_s=30)]
    aware = ran(nodes(2), [first, second, *later])
    plain = ran(nodes(2), [first, second, *later], PLAIN)
    assert (aware.ends_s["c"], summary(aware).data_fetched_gb) == (40, 0.2)
    assert (plain.ends_s["c"], summary(plain).data_fetched_gb) == (50, 0.3)


def test_a_synchronous_job_waits_for_the_data_of_all_its_tasks() -> None:
    """Node n-0 has x from job a, and n-1 fetches it for the second task."""
    gang = job("g", "x", submit_s=30, tasks=2, is_synchronous=True)
    simulated = ran(nodes(2), [job("a", "x"), gang])
    assert simulated.ends_s == {"a": 20, "g": 50}


def test_the_least_recently_used_copy_makes_room() -> None:
    jobs = [
        job(name, name, submit_s=at * 100, size_mb=400) for at, name in enumerate(("x", "y", "z"))
    ]
    again = [job("again-y", "y", submit_s=300, size_mb=400)]
    simulated = ran(nodes(1), [*jobs, *again])
    assert simulated.ends_s["again-y"] == 310
    evicted = ran(nodes(1), [*jobs, job("again-x", "x", submit_s=300, size_mb=400)])
    assert evicted.ends_s["again-x"] == 350


def test_required_data_is_prefetched_and_holds_no_node_meanwhile() -> None:
    """The plain job runs while the data arrives."""
    simulated = ran(nodes(1), [job("a", "x", locality="Required"), job("plain", submit_s=1)])
    assert simulated.starts_s == {"plain": 1, "a": 11}
    assert simulated.ends_s == {"plain": 11, "a": 21}
    assert summary(simulated).data_wait_mean_s == 0


def test_the_data_of_a_gang_that_waits_for_a_node_is_fetched_meanwhile() -> None:
    jobs = [simulations.job("busy", 0, 60), job("a", "x", submit_s=1)]
    assert ran(nodes(1), jobs).ends_s["a"] == 70
    assert ran(nodes(1), jobs, PLAIN).ends_s["a"] == 80


def test_a_node_that_fails_loses_its_copies() -> None:
    failures = [workload.NodeFailure("n", 40 * SECOND, 50 * SECOND)]
    simulated = ran(nodes(1), [job("a", "x"), job("b", "x", submit_s=60)], failures=failures)
    assert simulated.ends_s == {"a": 20, "b": 80}


def test_a_node_that_fails_during_a_fetch_begins_again() -> None:
    failures = [workload.NodeFailure("n", 5 * SECOND, 50 * SECOND)]
    simulated = ran(nodes(1), [job("a", "x")], failures=failures)
    assert simulated.ends_s == {"a": 70}


def test_data_that_fits_no_cache_leaves_the_job_pending_with_the_reason() -> None:
    simulated = ran(nodes(1, cache_mb=50), [job("a", "x"), job("plain")])
    assert simulated.ends_s == {"plain": 10}
    (unfinished,) = summary(simulated).unfinished_jobs
    assert "a cache that is too small for 100.0 MB of data sets" in unfinished.reason


def test_nodes_without_caches_delay_nothing() -> None:
    simulated = ran(simulations.nodes(1), [job("a", "x")])
    assert simulated.ends_s == {"a": 10}


def test_a_simulation_without_data_sets_has_no_measures_of_them() -> None:
    found = summary(ran(nodes(1), [simulations.job("a")]))
    assert (found.data_fetched_gb, found.data_wait_mean_s) == (None, None)


def read(folder: Path, nodes_text: str, jobs_text: str) -> inputs.Inputs:
    (folder / "nodes.csv").write_text(nodes_text)
    (folder / "jobs.csv").write_text(jobs_text)
    return inputs.read(folder / "nodes.csv", folder / "jobs.csv")


def test_caches_and_data_sets_are_columns(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "name,cpu,cache_gib,read_mb_per_s\nn,1,2,50\n",
        "submit_s,duration_s,data_sets,data_locality,data_sharing\n"
        "0,1,x=0.5;y=1,Required,Spread\n0,1,,,\n",
    )
    (group,) = found.nodes
    assert (group.cache_bytes, group.read_bytes_per_s) == (2 * 2**30, 50 * MB)
    first, second = found.jobs
    assert [(each.name, each.bytes, each.locality, each.sharing) for each in first.data_sets] == [
        ("x", 2**29, "Required", "Spread"),
        ("y", 2**30, "Required", "Spread"),
    ]
    assert second.data_sets == ()


def test_invalid_data_sets_are_named(tmp_path: Path) -> None:
    jobs_text = (
        "submit_s,duration_s,data_sets,data_locality,data_sharing\n"
        "0,1,x=much,,\n0,1,x,,\n0,1,x=1,Always,\n0,1,x=1,,Sometimes\n"
    )
    with pytest.raises(CommandError) as error:
        read(tmp_path, "name,cpu\nn,1\n", jobs_text)
    for line, column in ((2, "data_sets"), (3, "data_sets"), (4, "data_locality")):
        assert any(f"jobs.csv:{line}: column {column}" in it for it in error.value.details)
    assert len(error.value.details) == 4


NAMES = ("u", "v", "w", "x")
SIZES_MB = {"u": 40, "v": 60, "w": 100, "x": 150}
JOBS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    reads=st.sets(st.sampled_from(NAMES), max_size=2),
    tasks=st.integers(1, 3),
    submit_s=st.integers(0, 60),
    locality=st.sampled_from(["Preferred", "Required"]),
    sharing=st.sampled_from(["", "Share", "Spread"]),
    is_synchronous=st.booleans(),
)


@depth.examples(60)
@given(
    caches_mb=st.lists(st.integers(30, 250), min_size=1, max_size=3),
    jobs=st.lists(JOBS, max_size=7),
)
def test_every_job_whose_data_fits_enough_caches_ends(
    caches_mb: list[int], jobs: list[dict[str, Any]]
) -> None:
    """Whatever others wait for; a job that fits no cache says so, and holds nothing."""
    cluster = tuple(
        workload.NodeGroup(
            f"n{at}",
            1,
            workload.Resources(2000),
            cache_bytes=size * MB,
            read_bytes_per_s=10 * MB,
        )
        for at, size in enumerate(caches_mb)
    )
    simulated = ran(cluster, [_drawn(f"j{at}", **each) for at, each in enumerate(jobs)])
    unfinished = {each.job: each.reason for each in summary(simulated).unfinished_jobs}
    for at, each in enumerate(jobs):
        need_mb = sum(SIZES_MB[name] for name in each["reads"])
        slots = sum(2 for size in caches_mb if not need_mb or size >= need_mb)
        if slots >= each["tasks"]:
            assert f"j{at}" in simulated.ends_s, unfinished
        else:
            assert unfinished[f"j{at}"]
    for name in simulated.kernel.caches.nodes:
        report = simulated.kernel.caches.report(name, simulated.kernel.now_us)
        assert report.used_bytes <= report.capacity_bytes


def _drawn(name: str, reads: set[str], sharing: str, locality: str, **fields: Any) -> workload.Job:
    requests = tuple(
        data_sets.request_of(
            batch.DataSet(
                name=each,
                uri=f"s3://b/{each}",
                size=SIZES_MB[each] * MB,
                sharing=sharing,
                locality=locality,
            )
        )
        for each in sorted(reads)
    )
    return msgspec.structs.replace(job(name, **fields), data_sets=requests)
