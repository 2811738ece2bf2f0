"""On every small cluster: gangs that are entitled to start do start, and decisions come to an end.

Arrivals are finite. Sessions run as the service starts them, and their decisions are executed
before the next one. When no session is due, no gang is pending that could start according to
``oracle.entitlement``, which searches by brute force: so each entitled gang without competitors
starts, and competing gangs start one after another. The number of sessions with decisions until
then is bounded by ``k`` per gang.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.scheduler.tests.oracle import entitlement
from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.closed_loop import PRIORITIES, Gang, Loop, Queue
from stromboli.scheduler.core.config import configuration
from stromboli.testkit.strategies import depth

EXAMPLES = 40
LATER = timedelta(days=2)
"""All that time changes has changed by then."""
GANG = sessions.plugin("gang")
MILD = sessions.plugin("gang", enablePreemptable=False)
BREAKABLE = sessions.plugin("gang", enablePreemptable=False, enableReclaimable=False)
PRIORITY, CONFORMANCE = sessions.plugin("priority"), sessions.plugin("conformance")
PROPORTION, CAPACITY = sessions.plugin("proportion"), sessions.plugin("capacity")
REST = [
    sessions.plugin("overcommit"),
    sessions.plugin("drf", enablePreemptable=False),
    sessions.plugin("predicates"),
    sessions.plugin("nodeorder"),
]


RUN = "enqueue, allocate, {}backfill"


class Setting(msgspec.Struct, frozen=True):
    """A configuration that users run, and what it permits."""

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
    configured = sessions.configured(*tiers, run=RUN.format(run))
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
            frees_quota=is_topology_aware or "gangpreempt" in run,
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
    """``later``: changes after nothing is due any more: a node, a gang, or the end of one.
    ``comes_back``: jobs create evicted pods again.
    """

    nodes: Mapping[str, int]
    queues: tuple[Queue, ...]
    gangs: tuple[Gang, ...]
    later: tuple["int | Gang | str | Relabelled", ...]
    comes_back: bool
    zones: Mapping[str, str] = {}
    """Node -> its label ``zone``."""


class Relabelled(msgspec.Struct, frozen=True):
    """The label ``zone`` of a node changes."""

    node: str
    zone: str


ZONES = ("x", "y")


class Ranges(msgspec.Struct, frozen=True):
    """Where a gang may be and what it may be worth."""

    queues: tuple[str, ...]
    priorities: tuple[int, int] = (0, PRIORITIES - 1)


@st.composite
def cases(draw: st.DrawFn, *, has_queues: bool = True) -> Case:
    """In half of them those that run are worth less than those that wait, so that evictions are
    what it takes."""
    nodes = {f"n{at}": draw(st.integers(2, 4)) for at in range(draw(st.integers(1, 3)))}
    total = sum(nodes.values())
    are_rivals = draw(st.booleans())
    names = ("a", "b") if has_queues and draw(st.integers(0, 3)) else ("a",)
    deserved = draw(st.integers(0, min(2, total) if are_rivals else total))
    shares = {"a": total - deserved, "b": deserved}
    weights = {"a": draw(st.integers(1, 3)), "b": draw(st.integers(1, 1 if are_rivals else 3))}
    queues = tuple(Queue(name, weights[name], shares[name]) for name in names)
    first = second = Ranges(names)
    if are_rivals:
        first = Ranges((draw(st.sampled_from(names)),), (0, 0))
        second = Ranges(names[:1], (1, PRIORITIES - 1))
    idle = dict(nodes)
    gangs = [
        *(draw(gang(f"g{at}", first, idle)) for at in range(draw(st.integers(0, 2)))),
        *(draw(gang(f"w{at}", second)) for at in range(draw(st.integers(1, 2)))),
    ]
    zones: dict[str, str] = {}
    if draw(st.booleans()):
        zones = {name: draw(st.sampled_from(ZONES)) for name in nodes}
        gangs = [draw(selecting(each)) for each in gangs]
    choices: list[st.SearchStrategy[int | Gang | str | Relabelled]] = [
        st.integers(2, 4),
        gang("late", second),
        st.builds(Relabelled, st.sampled_from(sorted(nodes)), st.sampled_from(ZONES)),
    ]
    ending = [each.name for each in gangs if each.running]
    if ending:
        choices.append(st.sampled_from(ending))
    later = draw(st.lists(st.one_of(choices), max_size=2, unique_by=type))
    return Case(nodes, queues, tuple(gangs), tuple(later), draw(st.booleans()), zones)


@st.composite
def gang(draw: st.DrawFn, name: str, ranges: Ranges, idle: dict[str, int] | None = None) -> Gang:
    """``idle``: where it runs, if there is room and its minimum fits."""
    cpu, pods = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    minimum = draw(st.sampled_from([pods, draw(st.integers(1, pods))]))
    places: list[str] = []
    for _ in range(0 if idle is None else pods):
        assert idle is not None
        room = [node for node, left in idle.items() if left >= cpu]
        if room:
            node = draw(st.sampled_from(room))
            idle[node] -= cpu
            places.append(node)
    if idle is not None and len(places) < minimum:
        for node in places:
            idle[node] += cpu
        places = []
    return Gang(
        name=name,
        queue=draw(st.sampled_from(ranges.queues)),
        priority=draw(st.integers(*ranges.priorities)),
        minimum=minimum,
        cpu=cpu,
        running=tuple(places),
        waiting=pods - len(places),
        is_inside=bool(places) or draw(st.booleans()),
    )


@st.composite
def selecting(draw: st.DrawFn, given: Gang) -> Gang:
    """The gang with a node selector, which perhaps matches no node."""
    if given.running:
        return given
    zone = draw(st.sampled_from(["", *ZONES]))
    pod = {"node_selector": {"zone": zone}} if zone else {}
    return msgspec.structs.replace(given, pod=pod)


def lived(name: str, case: Case) -> None:
    """The cluster comes to rest, and again after each later change."""
    chosen = SETTINGS[name]
    # Reclaim follows Volcano, with which two queues may reclaim from each other alternately:
    # eviction-limits ends that, and has a separate property.
    comes_back = case.comes_back and not chosen.rules.reclaims
    loop = Loop(chosen.configured, case.nodes, case.queues, comes_back=comes_back)
    for node, zone in case.zones.items():
        loop.label_node(node, zone=zone)
    for each in case.gangs:
        loop.add(each)
    rests(chosen, case, loop)
    for event in case.later:
        loop.history.append(f"then {event}")
        match event:
            case int():
                loop.add_node("late", event, labels={"zone": ZONES[0]})
            case Relabelled():
                loop.label_node(event.node, zone=event.zone)
            case Gang():
                loop.add(event)
            case str():
                loop.end(event)
        rests(chosen, case, loop)
    assert not loop.step(), f"a trigger was missed: {loop.history} in {case}"
    loop.now += LATER
    assert not loop.step(), f"a time was missed: {loop.history} in {case}"


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


QUEUES = (Queue("a", 3, 9), Queue("b", 1, 1))
HALVES = (Queue("a", 1, 6), Queue("b", 1, 6))
KNOWN = [
    (
        "reclaim by capacity",
        {"n0": 2, "n1": 4, "n2": 4},
        Gang("old", "b", 0, 3, 2, ("n2", "n0", "n2")),
        Gang("new", "a", 2, 3, 2, waiting=3),
    ),
    *(
        (
            name,
            {"n0": 3, "n1": 3, "n2": 3},
            Gang("old", "a", 0, 3, 2, ("n0", "n1", "n2")),
            Gang("new", "a", 1, 1, 3, waiting=1),
        )
        for name in ("chart and preempt", "topology-aware preempt")
    ),
    (
        "reclaim by capacity",
        {"n0": 2, "n1": 4},
        Gang("old", "b", 1, 3, 2, ("n0", "n1", "n1")),
        Gang("new", "a", 1, 4, 1, waiting=4),
    ),
]


@pytest.mark.parametrize(
    ("name", "nodes", "old", "new"),
    KNOWN,
    ids=[
        "room that is idle and room that reclaim makes together",
        "a gang of which all pods are needed gives way to a higher priority",
        "and so in dry runs",
        "room that one victim makes serves several tasks",
    ],
)
def test_evictions_make_room_for_a_whole_gang(
    name: str, nodes: Mapping[str, int], old: Gang, new: Gang
) -> None:
    lived(name, Case(nodes, QUEUES, (old, new), (), comes_back=False))


@pytest.mark.parametrize("name", [name for name, each in SETTINGS.items() if each.has_queues])
def test_gangs_larger_than_their_shares_start_one_after_another(name: str) -> None:
    """Neither fits within half of the cluster, and each keeps the other's queue from more."""
    loop = Loop(SETTINGS[name].configured, {"n0": 4, "n1": 4, "n2": 4}, HALVES)
    for queue in "ab":
        loop.add(Gang(queue, queue, 0, 3, 3, waiting=3))
    loop.settle(8)
    started = [name for name in "ab" if len(loop.places(name)) == 3]
    assert len(started) == 1, loop.history
    loop.end(*started)
    loop.settle(8)
    assert len(loop.places(*{"a", "b"}.difference(started))) == 3, loop.history


@pytest.mark.parametrize("name", SETTINGS)
def test_a_gang_that_no_node_accepts_does_not_keep_others_from_their_queue(name: str) -> None:
    obstructed = Gang("old", "a", 0, 2, 3, waiting=2, pod={"node_selector": {"zone": "y"}})
    new = Gang("new", "a", 0, 2, 2, waiting=2, is_inside=False)
    queues = (Queue("a", deserved=6),)
    lived(name, Case({"n0": 3, "n1": 3}, queues, (obstructed, new), (), comes_back=False))


def test_reclaim_takes_small_victims_first_where_a_queue_gives_no_more_than_its_excess() -> None:
    """Without the large pod, the queue holds one CPU more than it deserves: one small pod can be
    evicted, and the new gang needs two.
    """
    gangs = (
        Gang("small", "b", 0, 3, 1, ("n1", "n1", "n1")),
        Gang("large", "b", 0, 1, 3, ("n0",)),
        Gang("own", "a", 1, 2, 1, ("n0", "n1")),
        Gang("new", "a", 1, 2, 2, waiting=2),
    )
    queues = (Queue("a", deserved=6), Queue("b", deserved=2))
    lived("reclaim by capacity", Case({"n0": 4, "n1": 4}, queues, gangs, (), comes_back=False))


@pytest.mark.parametrize("name", ["chart and reclaim", "reclaim by proportion"])
def test_reclaim_takes_the_victim_whose_node_then_has_room_for_the_whole_gang(name: str) -> None:
    """All victims are equal and the queue may lose one of them; nodes differ in size."""
    queues = (Queue("a"), Queue("b"))
    gangs = (
        Gang("old", "b", 0, 2, 3, running=("n0", "n1", "n2")),
        Gang("new", "a", 0, 2, 2, waiting=2),
    )
    lived(name, Case({"n0": 3, "n1": 3, "n2": 4}, queues, gangs, (), comes_back=False))


@depth.examples(EXAMPLES)
@given(st.lists(gang("g", Ranges(("a",))), min_size=1, max_size=4), st.integers(1, 4))
def test_every_gang_enters_its_queue_when_its_waiting_time_is_over(
    gangs: list[Gang], cpus: int
) -> None:
    """Also one that is too large for the cluster, and though nothing else happens."""
    tiers = ([PRIORITY, GANG, sessions.plugin("sla")], [*REST, PROPORTION])
    loop = Loop(sessions.configured(*tiers, run=RUN.format("")), {"n0": cpus}, [Queue("a")])
    for at, each in enumerate(gangs):
        changes = {"name": f"g{at}", "is_inside": False, "waits_s": 10 * at + 3}
        loop.add(msgspec.structs.replace(each, **changes))
    assert loop.settle(20 * len(gangs)) is not None
    assert [name for name in loop.gangs if loop.phase(name) == "Pending"] == []


@st.composite
def unequal_gangs(draw: st.DrawFn, name: str, nodes: Sequence[int]) -> Gang:
    """Up to six pods of one to four cpus each; half of the gangs are made to fill the nodes."""
    cpus: list[int] = []
    if draw(st.booleans()):
        for left in nodes:
            part = draw(st.integers(1, left))
            cpus += [each for each in (part, left - part) if each]
        cpus = list(draw(st.permutations(cpus)))
    else:
        cpus = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    minimum = draw(st.sampled_from([len(cpus), draw(st.integers(1, len(cpus)))]))
    return Gang(name, "a", 0, minimum, 0, waiting=len(cpus), cpus=tuple(cpus))


@st.composite
def unequal_cases(draw: st.DrawFn) -> tuple[list[int], list[Gang]]:
    """Cpus of up to three nodes, and up to three gangs that are submitted together."""
    nodes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
    count = draw(st.integers(1, 3))
    return nodes, [draw(unequal_gangs(f"g{at}", nodes)) for at in range(count)]


@depth.examples(EXAMPLES)
@given(unequal_cases())
@example(([1, 2], [Gang("g0", "a", 0, 2, 0, waiting=2, cpus=(1, 2))]))
@example(([4, 3], [Gang("g0", "a", 0, 3, 0, waiting=3, cpus=(3, 2, 2))]))
def test_a_gang_of_unequal_tasks_starts_if_the_smallest_of_them_fit(
    case: tuple[list[int], list[Gang]],
) -> None:
    """No gang waits for which the idle nodes have places, whatever the order of its tasks."""
    nodes, gangs = case
    cluster = {f"n{at}": cpu for at, cpu in enumerate(nodes)}
    loop = Loop(SETTINGS["chart"].configured, cluster, [Queue("a")])
    for each in gangs:
        loop.add(each)
    assert loop.settle(20 * len(gangs)) is not None
    for name, each in loop.gangs.items():
        starts = bool(loop.places(name))
        assert starts or not entitlement.can_hold(loop.idle(), each.least_cpus), (
            f"{name} waits: {loop.history} in {case}"
        )
