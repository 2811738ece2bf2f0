"""Whatever the small cluster: what is entitled to start does, and what decides comes to rest.

Arrivals are finite. Sessions run as the service starts them, and what they decide is carried out
before the next one. If no session is due any more, no gang waits that could start by what
``oracle.entitlement`` finds by brute force: so each gang that is entitled and has no competitor
starts, and those that compete start one after another. The number of deciding sessions until then
is bounded by ``k`` for each gang.
"""

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests import sessions
from services.scheduler.tests.oracle import entitlement
from services.scheduler.tests.support.closed_loop import PRIORITIES, Gang, Loop, Queue
from stromboli.scheduler.core.framework import configuration
from stromboli.testkit import depth

EXAMPLES = 40
GANG = sessions.plugin("gang")
MILD = sessions.plugin("gang", enablePreemptable=False)
BREAKABLE = sessions.plugin("gang", enablePreemptable=False, enableReclaimable=False)
PRIORITY, CONFORMANCE = sessions.plugin("priority"), sessions.plugin("conformance")
PROPORTION, CAPACITY = sessions.plugin("proportion"), sessions.plugin("capacity")
SLA = sessions.plugin("sla")
REST = [
    sessions.plugin("overcommit"),
    sessions.plugin("drf", enablePreemptable=False),
    sessions.plugin("predicates"),
    sessions.plugin("nodeorder"),
]


class Setting(msgspec.Struct, frozen=True):
    """A configuration that users run, and what it lets be done."""

    configured: configuration.Configuration
    rules: entitlement.Rules

    @property
    def has_queues(self) -> bool:
        return bool(self.rules.sharing)

    def k(self, queues: int) -> int:
        """Deciding sessions for each gang."""
        return queues * len(self.configured.actions) + 2


def setting(
    run: str,
    *tiers: sessions.Tier,
    protects: Sequence[str] = (),
    is_topology_aware: bool = False,
) -> Setting:
    names = [plugin["name"] for tier in tiers for plugin in tier]
    configured = sessions.configured(*tiers, run=f"enqueue, allocate, {run}backfill")
    if is_topology_aware:
        arguments = {"preempt": {"enableTopologyAwarePreemption": True}}
        configured = msgspec.structs.replace(configured, action_arguments=arguments)
    return Setting(
        configured,
        entitlement.Rules(
            sharing=next((name for name in ("proportion", "capacity") if name in names), ""),
            preempts="preempt" in run,
            reclaims="reclaim" in run,
            protects=frozenset(protects),
            whole="gang" in run,
            overcommits="overcommit" in names,
        ),
    )


CHART = ([PRIORITY, MILD, CONFORMANCE], [*REST, PROPORTION])
BOTH = "preempt, reclaim, "
SETTINGS = {
    "chart": setting("", *CHART),
    "chart and preempt": setting("preempt, ", *CHART),
    "preempt, gangs protected": setting(
        "preempt, ", [PRIORITY, GANG, CONFORMANCE], [*REST, PROPORTION], protects=["preempt"]
    ),
    "topology-aware preempt": setting("preempt, ", *CHART, is_topology_aware=True),
    "chart and reclaim": setting("reclaim, ", *CHART, protects=["reclaim"]),
    "reclaim by proportion": setting(
        "reclaim, ", [PRIORITY, BREAKABLE], [*REST, CONFORMANCE, PROPORTION]
    ),
    "reclaim by capacity": setting(
        "reclaim, ", [PRIORITY, BREAKABLE], [*REST, CONFORMANCE, CAPACITY]
    ),
    "both by proportion": setting(BOTH, [PRIORITY, BREAKABLE], [*REST, CONFORMANCE, PROPORTION]),
    "both by capacity": setting(
        BOTH, [PRIORITY, GANG, CONFORMANCE], [*REST, CAPACITY], protects=["preempt", "reclaim"]
    ),
    "gang actions": setting(
        "gangpreempt, gangreclaim, ", [PRIORITY, GANG, CONFORMANCE], [*REST, CAPACITY]
    ),
}


class Case(msgspec.Struct, frozen=True):
    """``later``: what comes once nothing is due any more: a node, a gang, or the end of one."""

    nodes: Mapping[str, int]
    queues: tuple[Queue, ...]
    gangs: tuple[Gang, ...]
    later: tuple[int | Gang | str, ...]


@st.composite
def cases(draw: st.DrawFn, *, has_queues: bool = True) -> Case:
    nodes = {f"n{at}": draw(st.integers(2, 4)) for at in range(draw(st.integers(1, 3)))}
    queues = [
        Queue(name, draw(st.integers(1, 2)), draw(st.integers(0, sum(nodes.values()))))
        for name in ("a", "b")[: draw(st.integers(1, 2)) if has_queues else 1]
    ]
    idle = dict(nodes)
    gangs = [draw(gang(f"g{at}", queues, idle)) for at in range(draw(st.integers(1, 4)))]
    ending = [each.name for each in gangs if each.running]
    choices: list[st.SearchStrategy[int | Gang | str]] = [st.integers(2, 4)]
    choices.append(gang("late", queues, {}))
    if ending:
        choices.append(st.sampled_from(ending))
    later = draw(st.lists(st.one_of(choices), max_size=2, unique_by=type))
    return Case(nodes, tuple(queues), tuple(gangs), tuple(later))


@st.composite
def gang(draw: st.DrawFn, name: str, queues: Sequence[Queue], idle: dict[str, int]) -> Gang:
    """It runs as far as there is room, if that is wanted and makes its minimum."""
    cpu, pods = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    minimum = draw(st.sampled_from([pods, draw(st.integers(1, pods))]))
    places: list[str] = []
    if draw(st.booleans()):
        for _ in range(pods):
            room = [node for node, left in idle.items() if left >= cpu]
            if room:
                node = draw(st.sampled_from(room))
                idle[node] -= cpu
                places.append(node)
        if len(places) < minimum:
            for node in places:
                idle[node] += cpu
            places = []
    return Gang(
        name=name,
        queue=draw(st.sampled_from([queue.name for queue in queues])),
        priority=draw(st.integers(0, PRIORITIES - 1)),
        minimum=minimum,
        cpu=cpu,
        running=tuple(places),
        waiting=pods - len(places),
        is_inside=bool(places) or draw(st.booleans()),
    )


def lived(name: str, case: Case) -> None:
    """The cluster comes to rest, and then again after each of what comes later."""
    chosen = SETTINGS[name]
    loop = Loop(chosen.configured, case.nodes, case.queues)
    for each in case.gangs:
        loop.add(each)
    rests(chosen, case, loop)
    for event in case.later:
        loop.history.append(f"then {event}")
        match event:
            case int():
                loop.add_node("late", event)
            case Gang():
                loop.add(event)
            case str():
                loop.end(event)
        rests(chosen, case, loop)


def rests(chosen: Setting, case: Case, loop: Loop) -> None:
    most = chosen.k(len(case.queues)) * len(loop.gangs)
    assert loop.settle(most) is not None, f"no end of decisions: {loop.history} in {case}"
    view = entitlement.View(loop, case.queues)
    starved = list(entitlement.entitled(view, chosen.rules))
    assert not starved, f"{starved} after {loop.history} in {case}"


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_entitled_to_start_does(name: str) -> None:
    @depth.examples(EXAMPLES)
    @given(cases(has_queues=SETTINGS[name].has_queues))
    def property_(case: Case) -> None:
        lived(name, case)

    property_()
