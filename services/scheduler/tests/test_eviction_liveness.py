"""On random clusters with evicting actions: evictions come to an end while nothing changes, and a
gang that fits its queue's deserved share with idle room runs.

Jobs create evicted pods again. Plugins are drawn, too: without a plugin that divides the cluster,
or that orders jobs, the actions have fewer reasons not to evict.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import closed_loop, sessions
from services.scheduler.tests.support.closed_loop import Gang, Loop, Queue
from services.scheduler.tests.test_liveness import Ranges, gang
from stromboli.scheduler.core.config import configuration
from stromboli.shared import keys
from stromboli.testkit.strategies import depth

MOST = 200
"""Sessions with decisions."""
EVICTING = ("preempt", "reclaim", "gangpreempt", "gangreclaim")
RECLAIMING = {"reclaim", "gangreclaim"}
FIRST = ("priority", "conformance", "drf", "queue-policy")
FAIR_SHARE = {"queue-policy": "fair-share", "share-by": "user", "share-half-life": "0s"}
"""Owners are served by their present usage, which evictions and binds of a session change."""
USERS = [{keys.USER: user} for user in ("ann", "bob")]
DIVIDING = ("", "proportion", "capacity")


class Case(msgspec.Struct, frozen=True):
    """A cluster and its configuration."""

    configured: configuration.Configuration
    dividing: str
    nodes: Mapping[str, int]
    queues: tuple[Queue, ...]
    gangs: tuple[Gang, ...]


def plugin(name: str) -> dict[str, Any]:
    return sessions.plugin(name, FAIR_SHARE if name == "queue-policy" else None)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    dividing = draw(st.sampled_from(DIVIDING))
    first = ["gang", *draw(st.lists(st.sampled_from(FIRST), unique=True))]
    last = [*filter(None, [dividing]), "predicates", "nodeorder"]
    tiers = [[*first, *last]] if draw(st.booleans()) else [first, last]
    actions = draw(st.lists(st.sampled_from(EVICTING), min_size=1, unique=True))
    run = ", ".join(["enqueue", "allocate", *actions, "backfill"])
    configured = sessions.configured(*([plugin(name) for name in tier] for tier in tiers), run=run)
    nodes = {f"n{at}": draw(st.integers(2, 4)) for at in range(draw(st.integers(1, 3)))}
    names = "abc"[: draw(st.integers(1, 3))]
    left, queues = sum(nodes.values()), []
    for name in names:
        deserved = draw(st.integers(0, left))
        capability = draw(st.none() | st.integers(max(deserved, 1), sum(nodes.values())))
        queues.append(Queue(name, draw(st.integers(1, 3)), deserved, capability=capability))
        left -= deserved
    idle, ranges = dict(nodes), Ranges(tuple(names))
    gangs = [draw(gang(f"g{at}", ranges, idle)) for at in range(draw(st.integers(1, 2)))]
    gangs += [draw(gang(f"w{at}", ranges)) for at in range(draw(st.integers(1, 2)))]
    owned = [
        msgspec.structs.replace(each, annotations=draw(st.sampled_from(USERS))) for each in gangs
    ]
    return Case(configured, dividing, nodes, tuple(queues), tuple(owned))


@depth.examples(40)
@given(cases())
def test_evictions_end_and_idle_room_is_used(case: Case) -> None:
    # What a queue holds beyond its share is reclaimed as in Volcano, though the queue may be served
    # first and take it back: the plugin eviction-limits ends that.
    is_claimed = case.dividing and not RECLAIMING.isdisjoint(case.configured.actions)
    loop = Loop(case.configured, case.nodes, case.queues, comes_back=not is_claimed)
    for each in case.gangs:
        loop.add(each)
    assert loop.settle(MOST) is not None, f"no end: {loop.history[-12:]} in {case}"
    queues = {queue.name: queue for queue in case.queues}
    for each in case.gangs:
        held = sum(
            other.cpu * len(loop.places(other.name))
            for other in case.gangs
            if other.queue == each.queue
        )
        if loop.phase(each.name) == "Pending":
            held += sum(reserved(loop, other) for other in case.gangs if other.queue == each.queue)
        deserved = queues[each.queue].deserved or 0
        lacking = each.minimum - len(loop.places(each.name))
        fits = sum(left // each.cpu for left in loop.idle()) >= lacking
        is_entitled = case.dividing == "capacity" and held + lacking * each.cpu <= deserved
        assert not (lacking > 0 and fits and is_entitled), f"{each.name}: {loop.history} in {case}"


def reserved(loop: Loop, admitted: Gang) -> int:
    """The cpus of a gang that its queue has admitted and that does not run: no further gang is
    admitted to them."""
    lacking = admitted.minimum - len(loop.places(admitted.name))
    return max(lacking, 0) * admitted.cpu if loop.phase(admitted.name) == "Inqueue" else 0


def queues(configured: configuration.Configuration, nodes: Mapping[str, int]) -> Loop:
    return Loop(configured, nodes, [Queue("a"), Queue("b")], comes_back=True)


def evicting(action: str, *plugins: str) -> configuration.Configuration:
    first, last = (
        [plugin(name) for name in names]
        for names in (("gang", *plugins), ("predicates", "nodeorder"))
    )
    return sessions.configured(first, last, run=f"enqueue, allocate, {action}, backfill")


@pytest.mark.parametrize("plugins", [(), ("priority",), ("drf",), ("conformance",)])
def test_gangreclaim_ends_without_a_plugin_that_divides_the_cluster(
    plugins: tuple[str, ...],
) -> None:
    """No queue has a share, so each may reclaim from the other; the older gang is served first."""
    loop = queues(evicting("gangreclaim", *plugins), {"n0": 2})
    loop.add(Gang("old", "a", 0, minimum=1, cpu=1, running=("n0", "n0")))
    loop.add(Gang("new", "b", 1, minimum=2, cpu=1, waiting=2))
    assert loop.settle(20) == 0, loop.history


def test_gangreclaim_without_such_a_plugin_serves_the_queue_that_comes_first() -> None:
    """And that queue keeps the room: its gang is not evicted in turn."""
    loop = queues(evicting("gangreclaim"), {"n0": 2})
    loop.add(Gang("old", "b", 1, minimum=1, cpu=1, running=("n0", "n0")))
    loop.add(Gang("new", "a", 0, minimum=2, cpu=1, waiting=2))
    assert loop.settle(20) is not None, loop.history
    assert loop.places("new") == ["n0", "n0"]


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_a_gang_of_higher_priority_starts_once_and_stays(action: str) -> None:
    """The victims, which are created again, wait behind it."""
    loop = queues(evicting(action, "priority"), {"n0": 2, "n1": 2})
    loop.add(Gang("old", "a", 0, minimum=1, cpu=1, running=("n0", "n0", "n1", "n1")))
    loop.add(Gang("new", "a", 1, minimum=2, cpu=1, waiting=2))
    assert loop.settle(10) is not None, loop.history
    assert len(loop.places("new")) == 2
    assert len(loop.places("old")) == 2


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_a_gang_spares_the_victims_that_would_be_served_before_it(action: str) -> None:
    """The plugin gang orders jobs without their minimum by age: the older job is served first."""
    tier = [sessions.plugin("gang", enablePreemptable=False)]
    others = [sessions.plugin(name) for name in ("predicates", "nodeorder")]
    run = f"enqueue, allocate, {action}, backfill"
    loop = queues(sessions.configured(tier, others, run=run), {"n0": 2})
    loop.add(Gang("old", "a", 0, minimum=2, cpu=1, running=("n0", "n0")))
    loop.now += closed_loop.STEP
    loop.add(Gang("new", "a", 1, minimum=1, cpu=1, waiting=1))
    assert loop.settle(10) == 0, loop.history


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_an_owner_that_is_served_first_after_its_eviction_is_spared(action: str) -> None:
    """Owners are served by their usage. That of bob, which is above that of ann, falls below it
    with the eviction: his gang would take the room back."""
    first = [plugin("queue-policy"), plugin("priority")]
    first.append(sessions.plugin("gang", enablePreemptable=action == "gangpreempt"))
    run = f"enqueue, allocate, {action}, backfill"
    loop = queues(sessions.configured(first, [plugin("predicates")], run=run), {"n0": 6})
    ann, bob = USERS
    loop.add(Gang("holds", "a", 2, minimum=1, cpu=2, running=("n0",), annotations=ann))
    # A waiting pod, for which the order of the job was determined before the eviction.
    loop.add(
        Gang("old", "a", 0, 4, cpu=1, running=("n0",) * 4, waiting=1, annotations=bob),
    )
    loop.add(Gang("new", "a", 1, minimum=1, cpu=3, waiting=1, annotations=ann))
    assert loop.settle(10) == 0, loop.history
