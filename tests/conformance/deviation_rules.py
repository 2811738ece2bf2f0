"""Reasons for which an outcome on a random cluster differs from Volcano's, as executable rules.

A rule returns the differences of a case that it explains, from what both outcomes do to pods, nodes
and queues. It explains differences only, never facts on which both agree, and shows its reason in
numbers. Each rule has a row in docs/deviations.md.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tests.conformance.random_clusters import (
    BINDS,
    EVICTIONS,
    NOMINATIONS,
    Case,
    Difference,
    Outcome,
)

Found = set[Difference]
Load = dict[str, Counter[str]]
"""Node -> what it holds."""


class Rule(NamedTuple):
    """A reason for which an outcome differs.

    ``explains``: case, our outcome, Volcano's, their differences -> those explained. ``cases``: the
    number of recorded cases in which it explains any. ``agreeing``: what agreement with Volcano
    would cost. ``decided``: the recorded cases in which it explains all differences in binds,
    evictions and phases, not in nominations alone.
    """

    name: str
    explains: Callable[[Case, Outcome, Outcome, Found], Found]
    cases: int
    agreeing: str
    decided: tuple[str, ...] = ()


def load(case: Case, outcome: Outcome, kept: Iterable[str] = ()) -> Load:
    """The load of nodes after terminating and evicted pods are gone and bound pods are there.

    Pods of ``kept`` are not evicted.
    """
    gone = outcome.evicted - frozenset(kept)
    held: Load = {node: Counter() for node in case.nodes}
    for pod in case.pods.values():
        if pod.is_held and not pod.is_terminating and pod.key not in gone and pod.node in held:
            held[pod.node].update(pod.request)
    return with_places(case, held, outcome.bound)


def with_places(case: Case, held: Load, places: Mapping[str, str]) -> Load:
    """The load with these pods in addition."""
    held = {node: Counter(load) for node, load in held.items()}
    for key, node in places.items():
        held[node].update(case.pods[key].request)
    return held


def fits(case: Case, held: Load) -> bool:
    """No node holds more than it has."""
    return all(
        amount <= case.nodes[node].get(name, 0)
        for node, load in held.items()
        for name, amount in load.items()
    )


def gang_starts(case: Case, outcome: Outcome, gang: str) -> bool:
    """Whether the gang has its minimum after the outcome is executed."""
    placed = {*outcome.bound, *outcome.nominated}
    pods = [
        pod.key
        for pod in case.members(gang)
        if pod.has_succeeded
        or (pod.is_held and not pod.is_terminating and pod.key not in outcome.evicted)
        or (pod.is_best_effort and not pod.is_held)
        or pod.key in placed
    ]
    roles, known = case.roles(pods, gang), case.gangs[gang]
    prefix = gang.partition("/")[2]
    return roles.total() >= known.least and all(
        roles[f"{prefix}-{role}"] >= least for role, least in known.roles.items()
    )


def nominated(case: Case, outcome: Outcome, gang: str) -> dict[str, str]:
    """The gang's pods that are nominated -> node."""
    places = outcome.nominated
    return {key: places[key] for key in case.of_gang(places, gang)}


def other_victims(case: Case, ours: Outcome, theirs: Outcome) -> list[str]:
    """Victims of Volcano in gangs that lose other numbers of pods per role than with us."""
    gangs = {case.pods[key].gang for key in theirs.evicted}
    others = {
        gang for gang in gangs if case.roles(ours.evicted, gang) != case.roles(theirs.evicted, gang)
    }
    return [key for key in theirs.evicted - ours.evicted if case.pods[key].gang in others]


def gangs_of(found: Found, field: str) -> list[str]:
    """The gangs that differ in a field."""
    return sorted(each.gang for each in found if each.field == field)


def needless_victims(case: Case, ours: Outcome, theirs: Outcome, found: Found) -> Found:
    """Volcano evicts pods whose resources its own outcome does not need."""
    kept: list[str] = []
    wanted = gangs_of(found, EVICTIONS)
    for pod in [*sorted(theirs.evicted - ours.evicted), *sorted(theirs.evicted & ours.evicted)]:
        held = with_places(case, load(case, theirs, [*kept, pod]), theirs.nominated)
        if case.pods[pod].gang in wanted and fits(case, held):
            kept.append(pod)
    explained = set()
    for gang in wanted:
        more = case.roles(theirs.evicted, gang)
        more.subtract(case.roles(ours.evicted, gang))
        spare = case.roles(kept, gang)
        is_more = any(more.values())
        if is_more and all(0 <= count <= spare[role] for role, count in more.items()):
            explained.add(Difference(EVICTIONS, gang))
    return explained


def partial_nominations(case: Case, ours: Outcome, theirs: Outcome, found: Found) -> Found:
    """Volcano's preempt nominates tasks of a gang that lacks its minimum all the same."""
    return {
        Difference(NOMINATIONS, gang)
        for gang in gangs_of(found, NOMINATIONS)
        if "preempt" in case.actions
        and nominated(case, theirs, gang)
        and not nominated(case, ours, gang)
        and not gang_starts(case, theirs, gang)
    }


def room_without_evictions(case: Case, ours: Outcome, theirs: Outcome, found: Found) -> Found:
    """Stromboli nominates more pods of a gang that can start, and Volcano's own outcome has room
    for them: resources that it evicts, binds and nominates for other gangs that can start.
    """
    explained = set()
    for gang in gangs_of(found, NOMINATIONS):
        own, other = nominated(case, ours, gang), nominated(case, theirs, gang)
        held = load(case, theirs)
        for each in case.gangs:
            if each != gang and gang_starts(case, theirs, each):
                held = with_places(case, held, nominated(case, theirs, each))
        is_more = len(own) > len(other) and gang_starts(case, ours, gang)
        if is_more and fits(case, with_places(case, held, own)):
            explained.add(Difference(NOMINATIONS, gang))
    return explained


def joined_room(case: Case, ours: Outcome, theirs: Outcome, found: Found) -> Found:
    """We reclaim for a gang that Volcano leaves waiting: a node takes more of it than it has
    victims, since some of its room is idle or a victim leaves room over for the next task."""
    explained = set()
    for gang in gangs_of(found, NOMINATIONS):
        own = nominated(case, ours, gang)
        nodes = Counter(own.values())
        victims = [key for key in ours.evicted - theirs.evicted if case.pods[key].node in nodes]
        on_nodes = Counter(case.pods[key].node for key in victims)
        is_joined = any(count > on_nodes[node] for node, count in nodes.items())
        is_ours = bool(own) and not nominated(case, theirs, gang) and gang_starts(case, ours, gang)
        if "reclaim" in case.actions and is_ours and victims and is_joined:
            explained.add(Difference(NOMINATIONS, gang))
            explained |= {Difference(EVICTIONS, case.pods[key].gang) for key in victims}
    return explained


def victims_served_first(case: Case, ours: Outcome, theirs: Outcome, found: Found) -> Found:
    """Volcano's preempt evicts pods of a job of higher priority in the same queue, which would take
    the room back."""
    explained = set()
    for gang in gangs_of(found, NOMINATIONS):
        preemptor, places = case.gangs[gang], nominated(case, theirs, gang)
        if not places or nominated(case, ours, gang) or "preempt" not in case.actions:
            continue
        victims = [
            case.pods[key].gang
            for key in theirs.evicted - ours.evicted
            if case.pods[key].node in places.values()
            and case.gangs[case.pods[key].gang].queue == preemptor.queue
        ]
        if any(case.gangs[each].priority > preemptor.priority for each in victims):
            explained |= {Difference(EVICTIONS, each) for each in victims}
            explained.add(Difference(NOMINATIONS, gang))
    return explained


def protection_by_a_tier(case: Case, ours: Outcome, theirs: Outcome, found: Found) -> Found:
    """Volcano's preempt evict pods that the plugin gang protects, because another plugin of the
    tier is called after gang and priority agreed on no victim.
    """
    gang_plugin = case.plugin("gang")
    is_protecting = gang_plugin is not None and gang_plugin.get("enablePreemptable", True)
    broken = {
        case.pods[key].gang
        for key in other_victims(case, ours, theirs)
        if not gang_starts(case, theirs, case.pods[key].gang)
    }
    if "preempt" not in case.actions or not is_protecting or not broken:
        return set()
    queues = {case.gangs[each].queue for each in broken}
    preemptors = {
        gang
        for gang in gangs_of(found, NOMINATIONS)
        if case.gangs[gang].queue in queues and nominated(case, theirs, gang)
    }
    explained = {Difference(NOMINATIONS, gang) for gang in preemptors}
    return explained | {Difference(EVICTIONS, gang) for gang in broken}


def bound_pods_run(case: Case, ours: Outcome, theirs: Outcome, found: Found) -> Found:
    """Volcano reclaims from pods that do not run yet: an eviction that preempt undid left them
    Running. All that is evicted and nominated instead follows."""
    order = case.actions
    is_possible = {"preempt", "reclaim"} <= {*order} and order.index("preempt") < order.index(
        "reclaim"
    )
    bound = [key for key in other_victims(case, ours, theirs) if case.pods[key].is_bound]
    if not is_possible or not bound:
        return set()
    return {each for each in found if each.field in (EVICTIONS, NOMINATIONS)}


def anti_affinity_in_a_session(case: Case, ours: Outcome, theirs: Outcome, found: Found) -> Found:
    """Volcano nominates pods to one node that must not be on one node."""
    explained = set()
    for gang in gangs_of(found, NOMINATIONS):
        places = nominated(case, theirs, gang)
        together = Counter(node for key, node in places.items() if case.pods[key].anti_affinity)
        if any(count > 1 for count in together.values()):
            explained.add(Difference(NOMINATIONS, gang))
    return explained


def roles_that_lack_first(case: Case, ours: Outcome, theirs: Outcome, found: Found) -> Found:
    """Allocate starts a gang in which a role has more pods than its minimum: Volcano places them in
    order of priority, and no room is left for a role that lacks its own."""
    explained = set()
    for gang in gangs_of(found, BINDS):
        known, prefix = case.gangs[gang], gang.partition("/")[2]
        pods = case.roles([pod.key for pod in case.members(gang)], gang)
        has_surplus = any(pods[f"{prefix}-{role}"] > least for role, least in known.roles.items())
        bound = case.of_gang(ours.bound, gang)
        is_started = bool(bound) and not case.of_gang(theirs.bound, gang)
        if len(known.roles) > 1 and has_surplus and is_started and gang_starts(case, ours, gang):
            explained.add(Difference(BINDS, gang))
    return explained


def unequal_tasks_together(case: Case, ours: Outcome, theirs: Outcome, found: Found) -> Found:
    """Allocate starts a gang of unequal tasks for which Volcano finds no room in task order, and
    also starts each gang that Volcano starts.
    """
    started = {case.pods[key].gang for key in ours.bound}
    explained = set()
    for gang in gangs_of(found, BINDS):
        bound = case.of_gang(ours.bound, gang)
        sizes = {tuple(sorted(pod.request.items())) for pod in case.members(gang)}
        is_started = bool(bound) and not case.of_gang(theirs.bound, gang)
        keeps_others = {case.pods[key].gang for key in theirs.bound} <= started
        has_room = fits(case, load(case, ours)) and gang_starts(case, ours, gang)
        if is_started and len(sizes) > 1 and keeps_others and has_room:
            explained.add(Difference(BINDS, gang))
    return explained


RULES = (
    Rule(
        "unnecessary victims are not evicted",
        needless_victims,
        5,
        "evict running pods although no task uses their resources",
        ("e-700088", "e-700102", "c-700128", "d-700395", "e-700522"),
    ),
    Rule(
        "only gangs that can start are nominated",
        partial_nominations,
        32,
        "reserve resources for gangs that cannot start",
    ),
    Rule(
        "resources that need no eviction are nominated",
        room_without_evictions,
        8,
        "leave resources idle that could be reserved for the gang",
    ),
    Rule(
        "idle, left-over and reclaimed resources count together",
        joined_room,
        1,
        "not start a gang whose queue deserves the resources",
        ("c-700037",),
    ),
    Rule(
        "no victims that would be served first",
        victims_served_first,
        1,
        "evict pods that take the resources back, without end",
        ("c-700520",),
    ),
    Rule(
        "a pod that a plugin of a tier protects is not evicted",
        protection_by_a_tier,
        2,
        "evict pods that the plugin gang protects",
        ("g-700685",),
    ),
    Rule(
        "an undone eviction leaves a bound pod bound",
        bound_pods_run,
        1,
        "evict a pod that is not running yet as if it were running",
        ("c-700422",),
    ),
    Rule(
        "required anti-affinity applies within a session",
        anti_affinity_in_a_session,
        1,
        "nominate two pods to a node that they may not share",
    ),
    Rule(
        "roles that lack their minimum come first",
        roles_that_lack_first,
        1,
        "not start a gang that fits",
        ("e-700263",),
    ),
    Rule(
        "unequal tasks of a gang are packed together",
        unequal_tasks_together,
        4,
        "not start a gang that fits",
        ("g-700223", "f-700432", "b-700666"),
    ),
)
"""All reasons. A case of ``decided`` would agree only if the scheduler evicted needlessly, starved
an entitled gang, or broke a limit or a protection."""
