"""The cost of a session grows with its work, not with the product of its parts: counted, not timed.

What plugins are asked is counted, not instructions: CPython 3.11 may hang when it traces in a
process in which an exception was once sent to another thread, as the plugin watchdog does.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import plugins, simulate
from stromboli.scheduler.core.actions import preempt, reclaim
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import interfaces, opening, session
from stromboli.scheduler.core.model import entities
from stromboli.shared.api import meta
from stromboli.testkit import builders

COUNTER = "counter"
QUEUES = 50
JOBS_OF_A_QUEUE = 2
TIER = [sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")]


@pytest.mark.parametrize("shares", ["proportion", "capacity"])
def test_a_turn_asks_for_the_order_of_one_queue_not_of_all(shares: str) -> None:
    """Each queue has a turn for each of its jobs, and a last one, in enqueue and in allocate."""
    asked = queue_order_questions(shares)
    turns = 2 * QUEUES * (JOBS_OF_A_QUEUE + 1)
    assert asked <= 2 * turns


def queue_order_questions(shares: str) -> int:
    """How often plugins are asked for the key of a queue in a session that admits and binds all
    jobs of its queues."""
    asked: list[str] = []

    class Counter:
        def __init__(self, options: configuration.PluginOptions) -> None: ...

        def open(self, ssn: session.Session) -> None:
            def key(queue: entities.Queue) -> int:
                asked.append(queue.name)
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
    return len(asked)


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
