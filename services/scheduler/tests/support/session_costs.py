"""Counts the instructions of sessions in clusters of different sizes: ``python -m
services.scheduler.tests.support.session_costs CASE SIZE...`` writes a list of numbers.

A process of its own, since CPython 3.11 may hang when it traces in a process in which an exception
was once sent to another thread, as the plugin watchdog does.
"""

import json
import sys
from collections.abc import Callable, Mapping

from bench import session, session_clusters, session_long_running
from services.scheduler.tests.support import instructions
from stromboli.testkit import builders

OPTIONS = session_clusters.Options()
GANG = 8


def cluster(nodes: int, queues: int) -> session_long_running.LongRunningScheduler:
    """A scheduler with the evicting actions. Each node runs a pod of a gang of its own, and each
    queue has some of these gangs."""
    life = session_long_running.LongRunningScheduler(session.EVICTING)
    life.see(*(builders.make_queue(f"q{at}") for at in range(queues)))
    for at in range(nodes):
        node, name = f"n{at:05}", f"g{at:05}"
        life.see(
            builders.make_node(node, cpu="32", memory="256Gi"),
            builders.make_pod_group(name, queue=f"q{at % queues}", phase="Running"),
            builders.make_pod(f"{name}-w-0", name, node=node, phase="Running"),
        )
    life.accept(life.decide())
    return life


def arrive(life: session_long_running.LongRunningScheduler, name: str, queue: str) -> None:
    """A gang that fits."""
    least: builders.Resources = {"cpu": GANG, "memory": f"{GANG}Gi"}
    life.see(
        builders.make_pod_group(name, GANG, queue=queue, phase="Pending", min_resources=least),
        *(builders.make_pod(f"{name}-w-{at}", name) for at in range(GANG)),
    )


def one_gang(life: session_long_running.LongRunningScheduler) -> int:
    """The cost from the records of one gang to its decision, after a first gang."""
    arrive(life, "first", "q0")
    life.accept(life.decide())

    def decide() -> None:
        arrive(life, "second", "q0")
        (statement,) = life.decide().decisions
        assert len(statement.binds) == GANG

    return instructions.count(decide)


def many_gangs(queues: int) -> int:
    """The cost of a session that admits and binds 200 gangs of one pod in these queues."""
    life = cluster(50, queues)
    for at in range(200):
        name = f"new{at:03}"
        life.see(
            builders.make_pod_group(
                name, queue=f"q{at % queues}", phase="Pending", min_resources={"cpu": 1}
            ),
            builders.make_pod(f"{name}-w-0", name),
        )

    def decide() -> None:
        assert sum(len(each.binds) for each in life.decide().decisions) == 200

    return instructions.count(decide)


CASES: Mapping[str, Callable[[int], int]] = {
    "nodes": lambda nodes: one_gang(cluster(nodes, 1)),
    "queues": lambda queues: one_gang(cluster(1_000, queues)),
    "gangs-in-queues": many_gangs,
}

if __name__ == "__main__":
    _, case, *sizes = sys.argv
    sys.stdout.write(json.dumps([CASES[case](int(size)) for size in sizes]))
