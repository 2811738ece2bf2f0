"""The demo's traffic: counted by pairs of a worker and a server of one job."""

from pathlib import Path

from stromboli.embedded.demo import traffic
from stromboli.shared import keys
from stromboli.shared.api import core
from stromboli.testkit import builders


def pods(job: str, **nodes: str) -> list[core.Pod]:
    """``ps`` and ``worker``: nodes of the task's pods, a letter each."""
    return [
        builders.make_pod(
            f"{job}-{task}-{at}", job, task=task, node=node, annotations={keys.JOB_NAME: job}
        )
        for task, listed in nodes.items()
        for at, node in enumerate(listed)
    ]


def test_pairs_on_one_node_count_and_those_of_two_jobs_do_not() -> None:
    """The first job sends half of what it sends inside a node, the second nothing."""
    first = pods("a", ps="xy", worker="xy")
    assert traffic.traffic_inside_nodes(first) == 0.5
    assert traffic.traffic_inside_nodes([*first, *pods("b", ps="x", worker="yyyy")]) == 2 / 8


async def test_tasks_that_like_each_others_company_share_a_node(tmp_path: Path) -> None:
    """Three jobs that fill three nodes: all that they send stays inside, which no chance brings."""
    apart, near = await traffic.measure_traffic(tmp_path)
    assert near == 1.0
    assert apart < 1.0
