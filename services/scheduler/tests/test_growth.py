"""The cost of records is proportional to what they change, not to the size of the cluster: counted,
not timed.

The cost is the number of executed bytecode instructions. With twice as many objects of each kind,
reading all records costs twice as much if it is linear, and four times as much if each record
visits all objects.
"""

import tracemalloc
from collections.abc import Callable

import pytest

from bench import restart_cluster
from services.scheduler.tests.support import instructions
from stromboli.scheduler.core import policy
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.shared import envelope
from stromboli.shared.api import core, meta
from stromboli.testkit import builders, topic_log

SMALL = 20
MOST_GROWTH = 2.4
MOST_INSTRUCTIONS = 5_900
MOST_BYTES = 4_100


def gangs(number: int, *, queues: int = 1, classes: int = 0) -> list[meta.Object]:
    """Gangs that wait, spread over queues and priority classes."""
    return [
        builders.make_pod_group(
            f"g{at}",
            queue=f"q{at % queues}",
            priority_class=f"c{at % classes}" if classes else "",
        )
        for at in range(number)
    ]


def queues(log: topic_log.TopicLog, number: int) -> list[envelope.Record]:
    """They are created before and after their gangs, and change."""
    first = [builders.make_queue(f"q{at}") for at in range(number)]
    again = [builders.make_queue(f"q{at}", weight=2, version=2) for at in range(number)]
    half = number // 2
    return log.see(*first[:half], *gangs(4 * number, queues=number), *first[half:], *again)


def namespaces(log: topic_log.TopicLog, number: int) -> list[envelope.Record]:
    names = [f"team-{at}" for at in range(number)]
    first = [core.Namespace(metadata=builders.make_meta("namespace", name)) for name in names]
    again = [
        core.Namespace(
            metadata=builders.make_meta("namespace", name, version=2, labels={"team": name})
        )
        for name in names
    ]
    return log.see(*first, *gangs(number), *again)


def priority_classes(log: topic_log.TopicLog, number: int) -> list[envelope.Record]:
    """They are created before and after their gangs, and change."""
    first = [builders.make_priority_class(f"c{at}", at) for at in range(number)]
    half = number // 2
    return log.see(*first[:half], *gangs(4 * number, classes=number), *first[half:])


Records = Callable[[topic_log.TopicLog, int], list[envelope.Record]]


@pytest.mark.parametrize("records", [queues, namespaces, priority_classes])
def test_folding_twice_as_many_objects_costs_twice_as_much(records: Records) -> None:
    costs = []
    for number in (SMALL, SMALL, 2 * SMALL):  # the first run includes one-time work
        found = records(topic_log.TopicLog(), number)
        cache = cluster_cache.ClusterCache(policy.Policy().scheduler_names)

        def fold(
            cache: cluster_cache.ClusterCache = cache, found: list[envelope.Record] = found
        ) -> None:
            for record in found:
                cache.apply(record)

        costs.append(instructions.count(fold))
    assert costs[2] < MOST_GROWTH * costs[1], costs


def start(jobs: int) -> tuple[Callable[[], None], list[cluster_cache.ClusterCache]]:
    """What a start does with the records of running jobs of one pod, and its result."""
    drafts = restart_cluster.drafts(restart_cluster.Size(nodes=2, pods=jobs, jobs=jobs))
    log, caches = topic_log.TopicLog(), list[cluster_cache.ClusterCache]()
    records = [log.append(draft) for draft in drafts]

    def build() -> None:
        cache = cluster_cache.ClusterCache(policy.Policy().scheduler_names, is_deferred=True)
        for record in records:
            cache.apply(record)
        cache.build()
        cache.model.settle()
        caches.append(cache)

    return build, caches


def test_a_start_costs_a_limited_number_of_instructions_for_each_job() -> None:
    """Users have a hundred thousand jobs, and nothing is placed before all of them are read."""
    few, many = (instructions.count(start(number)[0]) for number in (100, 200))
    assert (many - few) / 100 < MOST_INSTRUCTIONS


def test_a_job_takes_a_limited_number_of_bytes() -> None:
    taken = []
    for number in (100, 100, 300, 100, 300):  # the first run includes what all share
        build, caches = start(number)
        tracemalloc.start()
        build()
        taken.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert len(caches[0].model.jobs) == number
    growth = [many - few for few, many in zip(taken[1::2], taken[2::2], strict=True)]
    # A table that all jobs of the process share may grow within one of them.
    assert min(growth) / 200 < MOST_BYTES, taken
