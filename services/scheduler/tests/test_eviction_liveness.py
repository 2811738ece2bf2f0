"""On random clusters with evicting actions: evictions come to an end while nothing changes, and a
gang that fits its queue's deserved share with idle room runs.

Jobs create evicted pods again. Plugins are drawn, too: without a plugin that divides the cluster,
or that orders jobs, the actions have fewer reasons not to evict.
"""

from collections.abc import Mapping

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.closed_loop import Gang, Loop, Queue
from services.scheduler.tests.test_liveness import Ranges, gang
from stromboli.scheduler.core.config import configuration
from stromboli.testkit.strategies import depth

MOST = 200
"""Sessions with decisions."""
EVICTING = ("preempt", "reclaim", "gangpreempt", "gangreclaim")
FIRST = ("priority", "conformance", "drf")
DIVIDING = ("", "proportion", "capacity")


class Case(msgspec.Struct, frozen=True):
    """A cluster and its configuration."""

    configured: configuration.Configuration
    dividing: str
    nodes: Mapping[str, int]
    queues: tuple[Queue, ...]
    gangs: tuple[Gang, ...]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    dividing = draw(st.sampled_from(DIVIDING))
    first = ["gang", *draw(st.lists(st.sampled_from(FIRST), unique=True))]
    last = [*filter(None, [dividing]), "predicates", "nodeorder"]
    tiers = [[*first, *last]] if draw(st.booleans()) else [first, last]
    actions = draw(st.lists(st.sampled_from(EVICTING), min_size=1, unique=True))
    run = ", ".join(["enqueue", "allocate", *actions, "backfill"])
    configured = sessions.configured(
        *([sessions.plugin(name) for name in tier] for tier in tiers), run=run
    )
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
    return Case(configured, dividing, nodes, tuple(queues), tuple(gangs))


@depth.examples(40)
@given(cases())
def test_evictions_end_and_idle_room_is_used(case: Case) -> None:
    loop = Loop(case.configured, case.nodes, case.queues, comes_back=True)
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
        deserved = queues[each.queue].deserved or 0
        lacking = each.minimum - len(loop.places(each.name))
        fits = sum(left // each.cpu for left in loop.idle()) >= lacking
        is_entitled = case.dividing == "capacity" and held + lacking * each.cpu <= deserved
        assert not (lacking > 0 and fits and is_entitled), f"{each.name}: {loop.history} in {case}"
