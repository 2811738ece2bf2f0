"""The cost of a session grows with its work, not with the product of its parts: counted, not timed.

What plugins are asked is counted, not instructions: CPython 3.11 may hang when it traces in a
process in which an exception was once sent to another thread, as the plugin watchdog does.
"""

import gc
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pytest

from bench import session as bench_session
from bench import session_long_running
from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import plugins, schedule, simulate
from stromboli.scheduler.core.actions import preempt, reclaim
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import interfaces, opening, session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.api import meta
from stromboli.testkit import builders

COUNTER = "counter"
QUEUES = 50
JOBS_OF_A_QUEUE = 2
TIER = [sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")]
BREAKABLE = [
    sessions.plugin("priority"),
    sessions.plugin("gang", enablePreemptable=False, enableReclaimable=False),
    *TIER[2:],
    sessions.plugin("proportion"),
]


@pytest.mark.parametrize("shares", ["proportion", "capacity"])
def test_a_turn_asks_for_the_order_of_one_queue_not_of_all(shares: str) -> None:
    """Each queue has a turn for each of its jobs, and a last one, in enqueue and in allocate."""
    requested = queue_order_questions(shares)
    turns = 2 * QUEUES * (JOBS_OF_A_QUEUE + 1)
    assert requested <= 2 * turns


def queue_order_questions(shares: str) -> int:
    """How often plugins are asked for the key of a queue in a session that admits and binds all
    jobs of its queues."""
    requested: list[str] = []

    class Counter:
        def __init__(self, options: configuration.PluginOptions) -> None: ...

        def open(self, ssn: session.Session) -> None:
            def key(queue: entities.Queue) -> int:
                requested.append(queue.name)
                return 0

            ssn.add_queue_order(key=key)

        def close(self, ssn: session.Session) -> None: ...

    def find(name: str, already_open: Collection[str]) -> interfaces.PluginFactory:
        return Counter if name == COUNTER else plugins.find(name, already_open)

    objects: list[meta.Object] = [builders.make_node("n1", cpu="320", memory="999Gi", pods=999)]
    for at in range(QUEUES):
        objects.append(sessions.queue(f"q{at:03}", deserved={"cpu": "2"}))
        for number in range(JOBS_OF_A_QUEUE):
            name = f"g{at:03}-{number}"
            objects.append(builders.make_pod_group(name, queue=f"q{at:03}", phase="Pending"))
            objects.append(builders.make_pod(f"{name}-0", name, cpu="1"))
    usual = sessions.configured([*TIER, sessions.plugin(shares)], run="enqueue, allocate, backfill")
    counting = (configuration.PluginOptions(COUNTER),)
    configured = configuration.Configuration(usual.actions, (counting, *usual.tiers))
    ssn = opening.open_session(configured, sessions.given(objects), find)
    simulate.run_actions(ssn)
    assert len(ssn.decisions.binds) == JOBS_OF_A_QUEUE * QUEUES
    return len(requested)


class Unread(list[Any]):
    """Tasks by node that no one may walk through."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("all nodes are visited")


class UnreadJobs(dict[str, entities.Job]):
    """Jobs by key that no one may walk through."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all jobs are visited")

    def values(self) -> Any:
        raise AssertionError("all jobs are visited")


@pytest.mark.parametrize("act", [preempt.run, reclaim.run], ids=["preempt", "reclaim"])
def test_an_evicting_action_visits_no_victims_while_no_job_starves(
    act: Callable[[session.Session], None],
) -> None:
    objects: list[meta.Object] = [sessions.queue("q")]
    for at in range(3):
        objects.append(builders.make_node(f"n{at}", cpu="1"))
        objects.extend(sessions.gang(f"g{at}", "q", 1, node=f"n{at}", cpu="1"))
    configured = sessions.configured(
        [*TIER, sessions.plugin("proportion")], run="allocate, preempt, reclaim"
    )
    ssn = sessions.open_given(configured, sessions.given(objects))
    ssn.nodes.tasks, ssn.jobs = Unread(ssn.nodes.tasks), UnreadJobs(ssn.jobs)
    act(ssn)
    assert not ssn.decisions.evictions


def victim_questions(
    objects: list[meta.Object], act: Callable[[session.Session], None], run: str
) -> tuple[int, int]:
    """How often an action asks plugins for victims, and how many it evicts."""
    requested: list[int] = []

    class Counter:
        def __init__(self, options: configuration.PluginOptions) -> None: ...

        def open(self, ssn: session.Session) -> None:
            def choose(
                evictor: entities.Task, candidates: Sequence[entities.Task]
            ) -> extension_points.Victims:
                requested.append(len(candidates))
                return extension_points.Victims(candidates)

            ssn.add_preemptable(choose)
            ssn.add_reclaimable(choose)

        def close(self, ssn: session.Session) -> None: ...

    def find(name: str, already_open: Collection[str]) -> interfaces.PluginFactory:
        return Counter if name == COUNTER else plugins.find(name, already_open)

    usual = sessions.configured(BREAKABLE, run=run)
    counting = (configuration.PluginOptions(COUNTER), *usual.tiers[0])
    configured = configuration.Configuration(usual.actions, (counting,))
    ssn = opening.open_session(configured, sessions.given(objects), find)
    act(ssn)
    return len(requested), len(ssn.decisions.evictions)


def full_cluster(queue: str, size: int) -> list[meta.Object]:
    """Each node has a pod of a job of its own, and too little room for a pod of a gang that
    waits."""
    objects: list[meta.Object] = [sessions.queue("a"), sessions.queue("b")]
    for at in range(size):
        objects.append(builders.make_node(f"n{at}", cpu="2"))
        objects.extend(sessions.gang(f"g{at}", queue, 1, node=f"n{at}", cpu="1"))
    return [*objects, *sessions.gang("new", "a", 4, min_member=4, cpu="2")]


@pytest.mark.parametrize(
    ("act", "queue"), [(preempt.run, "a"), (reclaim.run, "b")], ids=["preempt", "reclaim"]
)
def test_an_evicting_action_visits_no_node_where_no_job_may_have_victims(
    act: Callable[[session.Session], None], queue: str
) -> None:
    """All jobs have the same priority, or their queue holds no more than it deserves."""
    objects = full_cluster(queue, 8)
    assert victim_questions(objects, act, "allocate, preempt, reclaim") == (0, 0)


@pytest.mark.parametrize("size", [4, 8])
def test_a_gang_without_enough_victims_asks_about_a_node_once_for_equal_tasks(size: int) -> None:
    """Two of its four pods could have room; the number of questions does not grow with the pods
    that find none."""
    lower = builders.make_priority_class("lower", -1)
    objects: list[meta.Object] = [lower, *full_cluster("a", size)]
    for at in range(2):
        node, name = f"m{at}", f"low{at}"
        objects.append(builders.make_node(node, cpu="2"))
        objects.append(
            builders.make_pod_group(name, 1, queue="a", phase="Running", priority_class="lower")
        )
        objects.append(builders.make_pod(f"{name}-0", name, node=node, phase="Running", cpu="2"))
    assert victim_questions(objects, preempt.run, "allocate, preempt") == (2, 0)


def test_a_session_is_freed_when_it_ends() -> None:
    """The garbage collector would free the arrays of many sessions together, which stops the
    process."""
    made: list[weakref.ref[interfaces.Plugin]] = []

    def find(name: str, already_open: Collection[str]) -> interfaces.PluginFactory:
        factory = plugins.find(name, already_open)

        def make(options: configuration.PluginOptions) -> interfaces.Plugin:
            plugin = factory(options)
            made.append(weakref.ref(plugin))
            return plugin

        return make

    life = session_long_running.LongRunningScheduler(bench_session.EVICTING)
    life.see(builders.make_queue("q"), builders.make_node("n1", cpu="8"))
    life.see(*sessions.gang("new", "q", 4, min_member=4))
    gc.disable()
    try:
        decided = schedule.run_session(life.cache, life.now, life.policy, find=find)
        assert len(decided.decisions[0].binds) == 4
        assert made
        assert not [plugin for plugin in made if plugin() is not None]
    finally:
        gc.enable()
