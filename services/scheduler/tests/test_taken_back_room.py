"""Reclaim evicts no pod that is served before the gang once it is pending again: it would take the
room back and be evicted without end."""

import pytest

from services.scheduler.tests.support import configurations
from services.scheduler.tests.support.closed_loop import Gang, Loop, Queue

RECLAIMING = [
    name for name in sorted(configurations.FLAT) if len(configurations.FLAT[name].actions) > 3
]
X, Y = {"node_selector": {"zone": "x"}}, {"node_selector": {"zone": "y"}}


def two_zones(name: str) -> Loop:
    """Zone x is full with pods of queue a, which holds its share; queue b holds most of its own in
    zone y."""
    queues = [Queue("a", deserved=2), Queue("b", deserved=4)]
    loop = Loop(configurations.FLAT[name], {}, queues, comes_back=True)
    loop.add_node("nx", 2, labels={"zone": "x"})
    loop.add_node("ny", 7, labels={"zone": "y"})
    loop.add(Gang("holds", "b", 1, minimum=1, cpu=3, running=("ny",), pod=Y))
    return loop


@pytest.mark.parametrize("name", RECLAIMING)
def test_a_surplus_pod_that_would_take_the_room_back_is_not_evicted(name: str) -> None:
    """One pod of the elastic job is enough for it, and its queue comes first."""
    loop = two_zones(name)
    loop.add(Gang("elastic", "a", 1, minimum=1, cpu=1, running=("nx", "nx"), pod=X))
    loop.add(Gang("waits", "b", 1, minimum=1, cpu=1, waiting=1, pod=X))
    assert loop.settle(most=20) == 0, loop.history
    assert loop.places("elastic") == ["nx", "nx"]


@pytest.mark.parametrize("name", ["evicting", "capacity"])
def test_a_best_effort_pod_takes_no_slot_that_allocate_gives_back(name: str) -> None:
    """Allocate serves pods with requests before backfill serves those without."""
    queues = [Queue("a", deserved=2), Queue("b", deserved=4)]
    loop = Loop(configurations.FLAT[name], {}, queues, comes_back=True)
    loop.add_node("nx", 4, labels={"zone": "x"}, pods=2)
    loop.add(Gang("elastic", "a", 1, minimum=1, cpu=1, running=("nx", "nx"), pod=X))
    loop.add(Gang("waits", "b", 1, minimum=1, cpu=0, waiting=1, pod=X))
    assert loop.settle(most=20) == 0, loop.history


@pytest.mark.parametrize("name", ["evicting", "capacity", "gangs"])
def test_a_surplus_pod_that_has_room_elsewhere_is_moved(name: str) -> None:
    """The gang can only start in zone x; the pod that makes room for it starts in zone y."""
    loop = two_zones(name)
    loop.add(Gang("elastic", "a", 1, minimum=1, cpu=1, running=("nx", "nx")))
    loop.add(Gang("waits", "b", 1, minimum=1, cpu=1, waiting=1, pod=X))
    assert loop.settle(most=20) is not None, loop.history
    assert loop.places("waits") == ["nx"]


@pytest.mark.parametrize("name", ["capacity", "gangs", "one tier"])
def test_a_queue_beyond_its_share_loses_a_pod_instead(name: str) -> None:
    queues = [Queue("a", deserved=2), Queue("b", deserved=4), Queue("c", deserved=1)]
    loop = Loop(configurations.FLAT[name], {}, queues, comes_back=True)
    for node in ("nx", "nz"):
        loop.add_node(node, 2, labels={"zone": "x"})
    loop.add_node("ny", 3, labels={"zone": "y"})
    loop.add(Gang("holds", "b", 1, minimum=1, cpu=3, running=("ny",), pod=Y))
    loop.add(Gang("elastic", "a", 1, minimum=1, cpu=1, running=("nx", "nx"), pod=X))
    loop.add(Gang("borrows", "c", 1, minimum=1, cpu=1, running=("nz", "nz"), pod=X))
    loop.add(Gang("waits", "b", 1, minimum=1, cpu=1, waiting=1, pod=X))
    assert loop.settle(most=20) is not None, loop.history
    assert loop.places("waits") == ["nz"]
    assert loop.places("elastic") == ["nx", "nx"]
